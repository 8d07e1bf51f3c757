"""Where completions come from: a pool of vLLM engines that weights are pushed into."""
