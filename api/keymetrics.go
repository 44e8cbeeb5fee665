package api

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/heftai/heft/api/keys"
)

// keyCollector collects the usage of API keys by name.
type keyCollector struct{ keys *keys.Set }

var (
	keyRunning  = prometheus.NewDesc("heft_key_requests_running", "Requests of an API key that run.", []string{"key"}, nil)
	keyRequests = prometheus.NewDesc("heft_key_requests_total", "Requests of an API key, by whether its limits admitted them.", []string{"key", "admitted"}, nil)
	keyTokens   = prometheus.NewDesc("heft_key_tokens_total", "Tokens that an API key has used.", []string{"key", "kind"}, nil)
)

// Describe implements prometheus.Collector.
func (c *keyCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{keyRunning, keyRequests, keyTokens} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *keyCollector) Collect(ch chan<- prometheus.Metric) {
	for _, u := range c.keys.Usage() {
		send := func(d *prometheus.Desc, kind prometheus.ValueType, n int64, labels ...string) {
			ch <- prometheus.MustNewConstMetric(d, kind, float64(n), append([]string{u.Name}, labels...)...)
		}
		send(keyRunning, prometheus.GaugeValue, int64(u.Running))
		send(keyRequests, prometheus.CounterValue, u.Requests, "true")
		send(keyRequests, prometheus.CounterValue, u.Rejected, "false")
		send(keyTokens, prometheus.CounterValue, u.PromptTokens, "prompt")
		send(keyTokens, prometheus.CounterValue, u.Completion, "generation")
	}
}
