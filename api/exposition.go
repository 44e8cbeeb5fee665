package api

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// expositionType is the text format of Prometheus, version 0.0.4.
const expositionType = "text/plain; version=0.0.4; charset=utf-8"

// exposition writes samples in the text format. Samples of one name follow each other.
type exposition struct {
	labels []string // of every sample: pairs of name and value
	out    bytes.Buffer
	last   string // the name whose header was written
}

func (x *exposition) gauge(name, help string, v float64, labels ...string) {
	x.header(name, help, "gauge")
	x.sample(name, v, labels...)
}

func (x *exposition) counter(name, help string, v float64, labels ...string) {
	x.header(name, help, "counter")
	x.sample(name, v, labels...)
}

func (x *exposition) header(name, help, kind string) {
	if x.last == name {
		return
	}
	x.last = name
	x.out.WriteString("# HELP " + name + " " + help + "\n# TYPE " + name + " " + kind + "\n")
}

// escaper writes a label's value.
var escaper = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)

func (x *exposition) sample(name string, v float64, labels ...string) {
	x.out.WriteString(name)
	separator := byte('{')
	for pair := range slices.Chunk(slices.Concat(x.labels, labels), 2) {
		x.out.WriteByte(separator)
		x.out.WriteString(pair[0] + `="` + escaper.Replace(pair[1]) + `"`)
		separator = ','
	}
	if separator == ',' {
		x.out.WriteByte('}')
	}
	x.out.WriteString(" " + number(v) + "\n")
}

func number(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

// histogram counts observations by buckets. It is safe for concurrent use.
type histogram struct {
	name, help string
	bounds     []float64 // upper bounds, ascending

	mu     sync.Mutex
	counts []uint64 // one a bound, and one beyond them
	sum    float64
}

func newHistogram(name, help string, bounds []float64) *histogram {
	return &histogram{name: name, help: help, bounds: bounds, counts: make([]uint64, len(bounds)+1)}
}

func (h *histogram) observe(v float64) {
	i, _ := slices.BinarySearch(h.bounds, v)
	h.mu.Lock()
	h.counts[i]++
	h.sum += v
	h.mu.Unlock()
}

func (h *histogram) expose(x *exposition) {
	h.mu.Lock()
	counts, sum := slices.Clone(h.counts), h.sum
	h.mu.Unlock()
	x.header(h.name, h.help, "histogram")
	var below uint64
	for i, n := range counts {
		below += n
		bound := "+Inf"
		if i < len(h.bounds) {
			bound = number(h.bounds[i])
		}
		x.sample(h.name+"_bucket", float64(below), "le", bound)
	}
	x.sample(h.name+"_sum", sum)
	x.sample(h.name+"_count", float64(below))
}
