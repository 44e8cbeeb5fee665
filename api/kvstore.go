package api

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/heftai/heft/dispatch"
)

// kvStoreCollector collects the counters of the store of cached prefixes.
type kvStoreCollector struct{ store *dispatch.KVStore }

var (
	kvStoreHits    = prometheus.NewDesc("heft_kv_store_hits_total", "Pages of keys and values that were read from the KV store.", nil, nil)
	kvStoreMisses  = prometheus.NewDesc("heft_kv_store_misses_total", "Look-ups of a page that the KV store did not have.", nil, nil)
	kvStoreDamaged = prometheus.NewDesc("heft_kv_store_damaged_total", "Files of the KV store that failed a check and were ignored.", nil, nil)
	kvStoreWritten = prometheus.NewDesc("heft_kv_store_written_total", "Pages that were written to the KV store.", nil, nil)
	kvStoreDropped = prometheus.NewDesc("heft_kv_store_dropped_total", "Pages that were not written: too many at once, gone, or an error.", nil, nil)
	kvStoreEvicted = prometheus.NewDesc("heft_kv_store_evictions_total", "Pages that this process evicted from the KV store.", nil, nil)
	kvStoreRead    = prometheus.NewDesc("heft_kv_store_read_bytes_total", "Bytes that were read from the KV store.", nil, nil)
	kvStoreWrote   = prometheus.NewDesc("heft_kv_store_written_bytes_total", "Bytes that were written to the KV store.", nil, nil)
	kvStoreBytes   = prometheus.NewDesc("heft_kv_store_bytes", "Size of the KV store, by all processes that use it.", nil, nil)
	kvStoreLimit   = prometheus.NewDesc("heft_kv_store_limit_bytes", "Limit of the size of the KV store.", nil, nil)
)

// Describe implements prometheus.Collector.
func (c *kvStoreCollector) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, ch) }

// Collect implements prometheus.Collector.
func (c *kvStoreCollector) Collect(ch chan<- prometheus.Metric) {
	st := c.store.Stats()
	for _, m := range []struct {
		desc  *prometheus.Desc
		kind  prometheus.ValueType
		value int64
	}{
		{kvStoreHits, prometheus.CounterValue, st.Hits}, {kvStoreMisses, prometheus.CounterValue, st.Misses},
		{kvStoreDamaged, prometheus.CounterValue, st.Damaged}, {kvStoreWritten, prometheus.CounterValue, st.Written},
		{kvStoreDropped, prometheus.CounterValue, st.Dropped}, {kvStoreEvicted, prometheus.CounterValue, st.Evicted},
		{kvStoreRead, prometheus.CounterValue, st.ReadBytes}, {kvStoreWrote, prometheus.CounterValue, st.WrittenBytes},
		{kvStoreBytes, prometheus.GaugeValue, st.Bytes}, {kvStoreLimit, prometheus.GaugeValue, st.Limit},
	} {
		ch <- prometheus.MustNewConstMetric(m.desc, m.kind, float64(m.value))
	}
}
