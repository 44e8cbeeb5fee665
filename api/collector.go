package api

import (
	"maps"
	"slices"
	"strconv"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/internal/engine"
)

// exposeEngine writes the engine's gauges and counters.
func exposeEngine(x *exposition, s engine.Stats) {
	x.gauge("vllm:num_requests_running", "Requests in the batch.", float64(s.Running))
	x.gauge("vllm:num_requests_waiting", "Requests that wait for a place in the batch.", float64(s.Waiting))
	x.gauge("vllm:kv_cache_usage_perc", "Pages of keys and values in use, as a part of 1.", float64(s.KV.Used)/float64(max(s.KV.Pages, 1)))
	x.gauge("vllm:cache_config_info", "Pages of keys and values; always 1.", 1,
		"block_size", strconv.Itoa(s.KV.PageTokens), "num_gpu_blocks", strconv.Itoa(s.KV.Pages))
	x.counter("vllm:prefix_cache_queries_total", "Tokens of prompts that were looked up among those computed before.", float64(s.KV.Queries))
	x.counter("vllm:prefix_cache_hits_total", "Tokens of prompts that were found there.", float64(s.KV.Hits))
	x.counter("vllm:num_preemptions_total", "Requests that gave their pages to older ones.", float64(s.Preemptions))
	x.counter("vllm:prompt_tokens_total", "Tokens of prompts that were computed.", float64(s.PromptTokens))
	x.counter("vllm:generation_tokens_total", "Tokens that were generated.", float64(s.GeneratedTokens))
	for _, reason := range slices.Sorted(maps.Keys(s.Finished)) {
		x.counter("vllm:request_success_total", "Requests that have ended, by reason.", float64(s.Finished[reason]),
			"finished_reason", string(reason))
	}
}

// exposeTiers writes what the tiers hold and have read.
func exposeTiers(x *exposition, s dispatch.Status) {
	for _, tier := range slices.Sorted(maps.Keys(s.TierBytes)) {
		x.gauge("heft_tier_bytes", "Bytes of weights that live on a tier.", float64(s.TierBytes[tier]), "tier", string(tier))
	}
	x.counter("heft_tier_read_bytes_total", "Bytes of weights that were read from a tier to compute.", float64(s.TierReadBytes),
		"tier", string(devicemap.Disk))
	x.counter("heft_stall_seconds_total", "Time that computing has waited for weights.", s.Stall.Seconds())
	for _, purpose := range slices.Sorted(maps.Keys(s.Held)) {
		x.gauge("heft_memory_bytes", "Memory held, by purpose.", float64(s.Held[purpose]), "purpose", purpose)
	}
}
