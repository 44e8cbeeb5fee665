package api

import (
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/internal/engine"
	"github.com/heftai/heft/internal/engine/holder"
)

// metrics collects the metrics of one model for /metrics. It uses vLLM's names if vLLM has the
// metric. It is the engine's Observer: histograms are updated by events; counters and gauges are
// read from the engine at each scrape.
type metrics struct {
	labels prometheus.Labels

	firstToken, nextToken, total     prometheus.Histogram
	queue, prefill, decode           prometheus.Histogram
	inference, perToken              prometheus.Histogram
	iteration, promptLen, answersLen prometheus.Histogram
	n, maxTokens, longest, computed  prometheus.Histogram
}

var _ engine.Observer = (*metrics)(nil)

// Buckets in seconds: of the time to the first token, of the time between tokens, and of a request.
var (
	firstBuckets  = []float64{.001, .005, .01, .02, .04, .06, .08, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560}
	tokenBuckets  = []float64{.01, .025, .05, .075, .1, .15, .2, .3, .4, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80}
	totalBuckets  = []float64{.3, .5, .8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680}
	choiceBuckets = []float64{1, 2, 5, 10, 20}
	batchBuckets  = []float64{1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384}
)

// countBuckets returns 1, 2, 5, 10, … up to most.
func countBuckets(most int) []float64 {
	var buckets []float64
	for power := 1; ; power *= 10 {
		for _, digit := range []int{1, 2, 5} {
			if digit*power > most {
				return buckets
			}
			buckets = append(buckets, float64(digit*power))
		}
	}
}

// newMetrics returns the metrics of a model. maxTokens is the Limit of its engine: the maximum
// number of tokens of a prompt and its answer.
func newMetrics(modelName string, maxTokens int) *metrics {
	counts := countBuckets(max(maxTokens, 1))
	m := &metrics{labels: labelsOf(modelName)}
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "vllm:" + name, Help: help, ConstLabels: m.labels, Buckets: buckets})
	}
	m.firstToken = histogram("time_to_first_token_seconds", "From a request's arrival to its first token.", firstBuckets)
	m.nextToken = histogram("inter_token_latency_seconds", "From one token of a request to its next.", tokenBuckets)
	m.total = histogram("e2e_request_latency_seconds", "From a request's arrival to its end.", totalBuckets)
	m.queue = histogram("request_queue_time_seconds", "From a request's arrival to its place in the batch.", totalBuckets)
	m.prefill = histogram("request_prefill_time_seconds", "From its place in the batch to its first token.", totalBuckets)
	m.decode = histogram("request_decode_time_seconds", "From a request's first token to its last.", totalBuckets)
	m.iteration = histogram("iteration_tokens_total", "Tokens of one forward pass.", batchBuckets)
	m.promptLen = histogram("request_prompt_tokens", "Tokens of a prompt.", counts)
	m.answersLen = histogram("request_generation_tokens", "Tokens of an answer.", counts)
	m.inference = histogram("request_inference_time_seconds", "From a request's place in the batch to its last token.", totalBuckets)
	m.perToken = histogram("request_time_per_output_token_seconds", "Mean time per token of a request after its first.", tokenBuckets)
	m.n = histogram("request_params_n", "The parameter n of a request.", choiceBuckets)
	m.maxTokens = histogram("request_params_max_tokens", "The parameter max_tokens of a request.", counts)
	m.longest = histogram("request_max_num_generation_tokens", "Tokens of the longest answer of a request.", counts)
	m.computed = histogram("request_prefill_kv_computed_tokens", "Tokens of a prompt that were computed, without cached ones.", counts)
	return m
}

// histograms returns all histograms of m.
func (m *metrics) histograms() []prometheus.Collector {
	return []prometheus.Collector{m.firstToken, m.nextToken, m.total, m.queue, m.prefill, m.decode, m.inference, m.perToken,
		m.iteration, m.promptLen, m.answersLen, m.n, m.maxTokens, m.longest, m.computed}
}

// Queued implements engine.Observer.
func (m *metrics) Queued(d time.Duration) { m.queue.Observe(d.Seconds()) }

// FirstToken implements engine.Observer.
func (m *metrics) FirstToken(d time.Duration) { m.firstToken.Observe(d.Seconds()) }

// NextToken implements engine.Observer.
func (m *metrics) NextToken(d time.Duration) { m.nextToken.Observe(d.Seconds()) }

// Step implements engine.Observer.
func (m *metrics) Step(s engine.StepStats) {
	m.iteration.Observe(float64(s.PromptTokens + s.GeneratedTokens))
}

// Finished implements engine.Observer.
func (m *metrics) Finished(s engine.ChoiceStats) {
	m.total.Observe(s.Total.Seconds())
	if s.Generated > 0 {
		m.prefill.Observe(s.Prefill.Seconds())
		m.decode.Observe(s.Decode.Seconds())
		m.inference.Observe((s.Prefill + s.Decode).Seconds())
		m.perToken.Observe(s.Decode.Seconds() / float64(max(s.Generated-1, 1)))
	}
	m.promptLen.Observe(float64(s.Prompt))
	m.answersLen.Observe(float64(s.Generated))
	m.computed.Observe(float64(s.Prompt - s.Cached))
	if s.MaxTokens > 0 {
		m.maxTokens.Observe(float64(s.MaxTokens))
	}
	if s.Choices > 0 {
		m.n.Observe(float64(s.Choices))
		m.longest.Observe(float64(s.LongestGenerated))
	}
}

// metrics serves GET /metrics from its own registry. The histograms of a model stay when it is
// unloaded.
func (s *service) metrics() http.Handler {
	r := prometheus.NewRegistry()
	r.MustRegister(&modelCollector{s}, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	if s.KVStore != nil {
		r.MustRegister(&kvStoreCollector{s.KVStore})
	}
	if s.Keys != nil {
		r.MustRegister(&keyCollector{s.Keys})
	}
	var mu sync.Mutex
	known := map[string]*metrics{}
	s.models.OnLoad(func(m *generate.Model) {
		mu.Lock()
		defer mu.Unlock()
		of := known[m.Name]
		if of == nil {
			of = newMetrics(m.Name, m.Limit())
			known[m.Name] = of
			r.MustRegister(of.histograms()...)
		}
		holder.Engine(m).Observe(of)
	})
	return promhttp.HandlerFor(r, promhttp.HandlerOpts{})
}

// modelCollector collects the counters of loaded models and the state of all models.
type modelCollector struct{ *service }

// Describe implements prometheus.Collector. It describes nothing, because the set of models
// changes.
func (c *modelCollector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c *modelCollector) Collect(ch chan<- prometheus.Metric) {
	adapters, bases := map[string]int{}, 0
	list := c.models.Known()
	for _, k := range list {
		if k.Parent != "" {
			adapters[k.Parent]++
		} else {
			bases++
		}
	}
	c.models.Each(func(m *generate.Model, _ func() any) {
		newCollector(labelsOf(m.Name), holder.Engine(m), adapters[m.Name], func() dispatch.Status { return c.statusOf(m) }).Collect(ch)
	})
	if bases < 2 {
		return
	}
	for _, k := range list {
		if k.Parent == "" {
			desc := prometheus.NewDesc("heft_model_state", "1 for the state that a model is in: known, loading, ready or failed.", []string{"state"}, labelsOf(k.Name))
			ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, 1, string(k.State))
		}
	}
}

// labelsOf returns the labels of all metrics of a model.
func labelsOf(model string) prometheus.Labels {
	return prometheus.Labels{"model_name": model, "engine": "0"}
}
