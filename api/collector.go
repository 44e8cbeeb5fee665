package api

import (
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/internal/engine"
)

// collector reads the counters of the engine and of the tiers at each scrape.
type collector struct {
	engine   *engine.Engine
	status   func() dispatch.Status
	adapters int // number of known adapters

	running, waiting, kvUsage, kvConfig    *prometheus.Desc
	prefixQueries, prefixHits, preemptions *prometheus.Desc
	promptTokens, answerTokens, success    *prometheus.Desc
	cachedTokens, promptSources            *prometheus.Desc
	drafts, draftTokens, acceptedTokens    *prometheus.Desc
	tierBytes, tierRead, stall, memory     *prometheus.Desc
	hits, misses, evictions, limit         *prometheus.Desc
	reads, repeats, flight, depth, busy    *prometheus.Desc
	lora                                   *prometheus.Desc
	deviceBytes, link, copying, computing  *prometheus.Desc
	speeds                                 [4]*prometheus.Desc // in the order of figures
}

func newCollector(labels prometheus.Labels, e *engine.Engine, adapters int, status func() dispatch.Status) *collector {
	desc := func(name, help string, variable ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, variable, labels)
	}
	return &collector{engine: e, status: status, adapters: adapters,
		running:        desc("vllm:num_requests_running", "Requests in the batch."),
		waiting:        desc("vllm:num_requests_waiting", "Requests that wait for a place in the batch."),
		kvUsage:        desc("vllm:kv_cache_usage_perc", "Pages of keys and values in use, as a part of 1."),
		kvConfig:       desc("vllm:cache_config_info", "Pages of keys and values; always 1.", "block_size", "num_gpu_blocks"),
		prefixQueries:  desc("vllm:prefix_cache_queries_total", "Tokens of prompts that were looked up among those computed before."),
		prefixHits:     desc("vllm:prefix_cache_hits_total", "Tokens of prompts that were found there."),
		preemptions:    desc("vllm:num_preemptions_total", "Requests that gave their pages to older ones."),
		promptTokens:   desc("vllm:prompt_tokens_total", "Tokens of prompts that were computed."),
		cachedTokens:   desc("vllm:prompt_tokens_cached_total", "Tokens of prompts whose cached keys and values were reused."),
		promptSources:  desc("vllm:prompt_tokens_by_source_total", "Tokens of prompts, by where their keys and values come from.", "source"),
		answerTokens:   desc("vllm:generation_tokens_total", "Tokens that were generated."),
		drafts:         desc("vllm:spec_decode_num_drafts_total", "Times that a pass verified guessed tokens of a sequence."),
		draftTokens:    desc("vllm:spec_decode_num_draft_tokens_total", "Guessed tokens that passes verified."),
		acceptedTokens: desc("vllm:spec_decode_num_accepted_tokens_total", "Guessed tokens that were right."),
		success:        desc("vllm:request_success_total", "Requests that have ended, by reason.", "finished_reason"),
		tierBytes:      desc("heft_tier_bytes", "Bytes of weights that live on a tier.", "tier"),
		tierRead:       desc("heft_tier_read_bytes_total", "Bytes of weights that were read from a tier to compute.", "tier"),
		stall:          desc("heft_stall_seconds_total", "Time that computing has waited for weights of a tier.", "tier"),
		hits:           desc("heft_weight_hits_total", "Weights of a tier that passes found in memory: parameters, units or experts.", "tier"),
		misses:         desc("heft_weight_misses_total", "Weights that passes did not find there: read from disk, used in the mapping of a file, or converted again.", "tier"),
		evictions:      desc("heft_weight_evictions_total", "Weights of a tier that left memory for others or for a lower limit.", "tier"),
		reads:          desc("heft_read_latency_seconds", "Time of one direct read of weights.", "tier"),
		repeats:        desc("heft_read_retries_total", "Direct reads that were repeated after an error.", "tier"),
		flight:         desc("heft_reads_in_flight", "Direct reads in flight.", "tier"),
		depth:          desc("heft_read_depth", "Most direct reads in flight, as measured for the disk.", "tier"),
		busy:           desc("heft_read_busy_seconds_total", "Time with at least one direct read in flight.", "tier"),
		limit:          desc("heft_memory_limit_bytes", "Limit of memory: the least of --max-memory and the control group's."),
		lora: desc("vllm:lora_requests_info", "Adapters that requests use; the value is the time.",
			"max_lora", "running_lora_adapters", "waiting_lora_adapters"),
		deviceBytes: desc("heft_device_bytes", "Memory of a GPU that the model holds.", "device"),
		link:        desc("heft_link_bytes_total", "Bytes copied between the host and a GPU.", "device", "direction"),
		copying:     desc("heft_copy_seconds_total", "Time in copies between the host and a GPU.", "device"),
		computing:   desc("heft_device_busy_seconds_total", "Time that modules ran on the host (cpu) or a GPU, for models with GPUs.", "device"),
		memory:      desc("heft_memory_bytes", "Memory held, by purpose.", "purpose"),
		speeds: [4]*prometheus.Desc{
			desc("heft_plan_load_seconds", "Time to bring the weights of the CPU tier into memory, predicted and measured.", "source"),
			desc("heft_plan_first_token_seconds", "Time to the first token with no weight in memory, predicted and measured.", "source"),
			desc("heft_plan_tokens_per_second", "Tokens per second of one sequence, predicted and measured.", "source"),
			desc("heft_plan_disk_bytes_per_token", "Bytes that a generated token reads from the disk, predicted and measured.", "source"),
		},
	}
}

// Collect sends the counters to ch.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	counter := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, labels...)
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	s := c.engine.Stats()
	gauge(c.running, float64(s.Running))
	gauge(c.waiting, float64(s.Waiting))
	gauge(c.kvUsage, float64(s.KV.Used)/float64(max(s.KV.Pages, 1)))
	gauge(c.kvConfig, 1, strconv.Itoa(s.KV.PageTokens), strconv.Itoa(s.KV.Pages))
	counter(c.prefixQueries, float64(s.KV.Queries))
	counter(c.prefixHits, float64(s.KV.Hits))
	counter(c.preemptions, float64(s.Preemptions))
	counter(c.promptTokens, float64(s.PromptTokens))
	counter(c.cachedTokens, float64(s.KV.Hits))
	counter(c.promptSources, float64(s.PromptTokens), "local_compute")
	counter(c.promptSources, float64(s.KV.Hits), "local_cache_hit")
	counter(c.promptSources, 0, "external_kv_transfer") // always 0: dashboards expect the label
	counter(c.answerTokens, float64(s.GeneratedTokens))
	counter(c.drafts, float64(s.Drafts))
	counter(c.draftTokens, float64(s.DraftTokens))
	counter(c.acceptedTokens, float64(s.AcceptedTokens))
	for reason, n := range s.Finished {
		counter(c.success, float64(n), string(reason))
	}
	if c.adapters > 0 {
		gauge(c.lora, float64(time.Now().UnixMilli())/1000, strconv.Itoa(c.adapters),
			strings.Join(s.RunningAdapters, ","), strings.Join(s.WaitingAdapters, ","))
	}
	c.collectTiers(ch, counter, gauge)
}

// collectTiers sends the bytes that tiers hold and read.
func (c *collector) collectTiers(ch chan<- prometheus.Metric, counter, gauge func(*prometheus.Desc, float64, ...string)) {
	t := c.status()
	for tier, n := range t.TierBytes {
		gauge(c.tierBytes, float64(n), string(tier))
	}
	disk := string(devicemap.Disk)
	counter(c.tierRead, float64(t.TierReadBytes), disk)
	for tier, n := range t.Tiers {
		counter(c.hits, float64(n.Hits), string(tier))
		counter(c.misses, float64(n.Misses), string(tier))
		counter(c.evictions, float64(n.Evictions), string(tier))
		counter(c.stall, n.StallSeconds, string(tier))
	}
	r := &t.Reads
	buckets, n := map[float64]uint64{}, int64(0)
	for i, most := range r.Buckets {
		n += r.Within[i]
		buckets[most.Seconds()] = uint64(n)
	}
	ch <- prometheus.MustNewConstHistogram(c.reads, uint64(r.Reads), r.Latency.Seconds(), buckets, disk)
	counter(c.repeats, float64(r.Repeats), disk)
	gauge(c.flight, float64(r.InFlight), disk)
	gauge(c.depth, float64(r.Depth), disk)
	counter(c.busy, r.Busy.Seconds(), disk)
	gauge(c.limit, float64(t.MemoryLimit))
	for source, speed := range map[string]*dispatch.ModelSpeed{"predicted": &t.Predicted, "measured": &t.Measured} {
		for i, v := range figures(speed) {
			if v != nil {
				gauge(c.speeds[i], *v, source)
			}
		}
	}
	for _, d := range t.Devices {
		device := string(d.Device)
		counter(c.computing, d.BusySeconds, device)
		if d.Device != devicemap.CPU {
			gauge(c.deviceBytes, float64(d.Bytes), device)
			counter(c.link, float64(d.ToDeviceBytes), device, "to_device")
			counter(c.link, float64(d.ToHostBytes), device, "to_host")
			counter(c.copying, d.CopySeconds, device)
		}
	}
	for purpose, n := range t.Held {
		gauge(c.memory, float64(n), purpose)
	}
}

// figures returns the numbers of s; unknown ones are nil.
func figures(s *dispatch.ModelSpeed) [4]*float64 {
	return [4]*float64{s.LoadSeconds, s.FirstTokenSeconds, s.TokensPerSecond, s.DiskBytesPerToken}
}
