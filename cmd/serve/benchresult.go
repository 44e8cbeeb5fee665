package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/internal/cmdline"
	"github.com/heftai/heft/internal/probe"
	"github.com/heftai/heft/meta"
)

// benchResult is the output of serve bench --json. Bytes and allocations per token are for one
// pass, which generates a token for each sequence of the batch. null means not measured.
type benchResult struct {
	Model        string `json:"model"`
	PromptTokens int    `json:"prompt_tokens"`
	DecodeTokens int    `json:"decode_tokens"`
	Batch        int    `json:"batch"`
	Threads      int    `json:"threads"`
	Variant      string `json:"variant"` // of the kernels
	// Weights is how the cpu tier is used: "mapped" if in place, "streamed" if all weights are on
	// the disk tier.
	Weights     string   `json:"weights"`
	Quantize    string   `json:"quantize"`     // the format that weights were converted to, or "none"
	Compress    string   `json:"compress"`     // exact if weights were coded, else none
	Precision   string   `json:"precision"`    // auto or high
	LoadSeconds *float64 `json:"load_seconds"` // to bring the cpu tier into memory

	PromptTokensPerSecond   *float64 `json:"prompt_tokens_per_second"`
	DecodeTokensPerSecond   *float64 `json:"decode_tokens_per_second"` // of all sequences
	TimeToFirstTokenSeconds float64  `json:"time_to_first_token_seconds"`

	// WeightBytesPerToken is the size of the weights that one decoding pass reads, from memory or
	// disk. DecodeBytesPerSecond is that times the passes per second, and DecodeRoofShare its share
	// of the memory rate.
	WeightBytesPerToken      int64    `json:"weight_bytes_per_token"`
	DecodeBytesPerSecond     *float64 `json:"decode_bytes_per_second"`
	MemoryReadBytesPerSecond *float64 `json:"memory_read_bytes_per_second"`
	DecodeRoofShare          *float64 `json:"decode_roof_share"`

	// PromptOperationsPerSecond counts the operations of matrix products for a prompt. PromptRoof
	// is the fastest kind of product that these kernels may use. PromptRoofShare is the achieved
	// share of its rate.
	PromptOperationsPerSecond *float64 `json:"prompt_operations_per_second"`
	PromptRoof                string   `json:"prompt_roof"`
	PromptRoofShare           *float64 `json:"prompt_roof_share"`

	// Promotion is null if weights were not promoted, or not in their stored form.
	Promotion *promotion `json:"promotion"`

	DiskBytesPerToken       *float64 `json:"disk_bytes_per_token"`
	DiskBytesPerSecond      *float64 `json:"disk_bytes_per_second"`
	DiskProbeBytesPerSecond *float64 `json:"disk_probe_bytes_per_second"`
	StallSeconds            *float64 `json:"stall_seconds"` // that decoding waited for the disk

	// Predicted is the speed that the plan predicts for this run with the mean of the rates in
	// Roofs: one pass for all sequences, with the cpu tier in memory. Measured has the measured
	// values of the same quantities. Predicted is null with --no-probe, and on devices of unknown
	// speed.
	Predicted *benchSpeed `json:"predicted"`
	Measured  benchSpeed  `json:"measured"`
	// PredictedShare is each number of Predicted divided by the measured one.
	PredictedShare *benchSpeed `json:"predicted_by_measured"`
	// Settling describes the tokens before the measured ones, while the cache of routed experts
	// fills. It is null if there are none.
	Settling *settling `json:"settling"`
	// PromptDiskBytes is the number of bytes that the first prompt read from disk, including those
	// read ahead for the next pass.
	PromptDiskBytes *float64 `json:"prompt_disk_bytes"`

	Tiers map[devicemap.Device]dispatch.TierStatus `json:"tiers"` // while decoding
	Reads benchReads                               `json:"reads"` // from the disk tier, while decoding
	// Experts counts the requests for routed experts of the disk tier while decoding. It is nil if
	// there are none.
	Experts *expertCounts `json:"experts,omitempty"`

	// Replay has the hits of a replay of the recorded routing, without its first quarter, by
	// policy. It is nil without --trace.
	Replay *dispatch.RoutingHits `json:"replay,omitempty"`

	AllocationsPerToken *float64 `json:"allocations_per_token"`

	// Adapters are assigned to the sequences in turn. Base has the rates without them.
	Adapters []string   `json:"adapters,omitempty"`
	Base     *baseRates `json:"base,omitempty"`

	// Roofs are the machine's rates before and after the run. The shares use their means, and
	// predictions the faster rates, because other work on the machine only makes a probe slower.
	Roofs  []*probe.Rates     `json:"roofs"`
	Ratios map[string]float64 `json:"ratios,omitempty"` // to the numbers of --compare
}

// benchSpeed is the speed of a run and its memory.
type benchSpeed struct {
	FirstTokenSeconds *float64 `json:"first_token_seconds"`
	TokensPerSecond   *float64 `json:"tokens_per_second"`
	DiskBytesPerToken *float64 `json:"disk_bytes_per_token"`
	MemoryBytes       *float64 `json:"memory_bytes"` // without the runtime and requests
}

// settling is what a cache of experts reads while it fills.
type settling struct {
	Tokens            int     `json:"tokens"`
	DiskBytesPerToken float64 `json:"disk_bytes_per_token"`
}

// by returns s divided by other, number by number. A quotient is nil if either is unknown or the
// divisor is 0.
func (s *benchSpeed) by(other *benchSpeed) *benchSpeed {
	ratio := func(a, b *float64) *float64 {
		if a == nil || b == nil || *b == 0 {
			return nil
		}
		return pointer(*a / *b)
	}
	return &benchSpeed{ratio(s.FirstTokenSeconds, other.FirstTokenSeconds), ratio(s.TokensPerSecond, other.TokensPerSecond),
		ratio(s.DiskBytesPerToken, other.DiskBytesPerToken), ratio(s.MemoryBytes, other.MemoryBytes)}
}

// expect predicts the run from the rates that were measured around it.
func (r *benchResult) expect(m *dispatch.Model) {
	speed := dispatch.MachineSpeed{}
	set := func(to *float64, v *float64) {
		if v != nil {
			*to = *v
		}
	}
	set(&speed.MemoryBytes, r.roof(func(p *probe.Rates) float64 { return p.MemoryAt(r.Threads) }))
	set(&speed.DiskBytes, r.DiskProbeBytesPerSecond)
	set(&speed.Operations32, r.computed("float32", false))
	set(&speed.Operations16, r.computed("bfloat16", r.Precision != "high"))
	set(&speed.Operations8, r.computed(meta.Conversions()[0].String(), r.Precision != "high"))
	speed.Products32 = r.byTokens("float32", false)
	speed.Products16 = r.byTokens("bfloat16", r.Precision != "high")
	speed.Products8 = r.byTokens(meta.Conversions()[0].String(), r.Precision != "high")
	set(&speed.Floats, r.roof(func(p *probe.Rates) float64 { return p.FloatsPerSecond }))
	for _, roof := range r.Roofs {
		if v := roof.OperationSeconds; speed.OperationSeconds == 0 || v > 0 && v < speed.OperationSeconds {
			speed.OperationSeconds = v
		}
	}
	if len(r.Roofs) > 0 {
		p := m.PredictRun(speed, dispatch.Run{PromptTokens: r.PromptTokens, DecodeTokens: r.DecodeTokens, BatchTokens: m.BatchLimits().Tokens, Sequences: r.Batch})
		r.Predicted = &benchSpeed{p.FirstTokenSeconds, p.TokensPerSecond, p.DiskBytesPerToken,
			pointer(float64(m.ExpectedMemory()))}
	}
	held := 0.0
	for _, bytes := range m.Status().Held {
		held += float64(bytes)
	}
	r.Measured = benchSpeed{&r.TimeToFirstTokenSeconds, r.DecodeTokensPerSecond, r.DiskBytesPerToken, &held}
	if r.Predicted != nil {
		r.PredictedShare = r.Predicted.by(&r.Measured)
	}
}

// computed returns the rate of products with weights of a format and tokens that are rounded or
// not.
func (r *benchResult) computed(format string, rounded bool) *float64 {
	return r.roof(func(p *probe.Rates) float64 { return p.ComputeFor(format, rounded) })
}

// roof returns the greater of a number measured before and after, or nil if it was not measured.
func (r *benchResult) roof(of func(*probe.Rates) float64) *float64 {
	var best *float64
	for _, roof := range r.Roofs {
		if v := of(roof); v > 0 && (best == nil || v > *best) {
			best = pointer(v)
		}
	}
	return best
}

// byTokens returns the rates of products by their number of tokens, selected as in computed.
func (r *benchResult) byTokens(format string, rounded bool) (speeds []dispatch.ProductSpeed) {
	if len(r.Roofs) == 0 {
		return nil
	}
	for i, first := range r.Roofs[0].ByTokensFor(format, rounded) {
		rate := r.roof(func(p *probe.Rates) float64 {
			if list := p.ByTokensFor(format, rounded); i < len(list) {
				return list[i].OperationsPerSecond
			}
			return 0
		})
		speeds = append(speeds, dispatch.ProductSpeed{Tokens: first.Tokens, Operations: *rate})
	}
	return speeds
}

// against prints how a measured number compares with its prediction.
func (r *benchResult) against(out cmdline.Output, name string, of func(*benchSpeed) *float64, scale float64, unit string) {
	if r.PredictedShare == nil || of(r.PredictedShare) == nil {
		return
	}
	fmt.Fprintf(out, "  %-11s %9.4g %s predicted, %.4g measured: predicted ÷ measured %.3f\n", name, *of(r.Predicted)/scale, unit, *of(&r.Measured)/scale,
		*of(r.PredictedShare))
}

// benchReads describes the direct reads of a measurement.
type benchReads struct {
	Count          int64    `json:"count"`
	Retries        int64    `json:"retries"`
	LatencySeconds *float64 `json:"latency_seconds"` // mean; null without reads
	Depth          *float64 `json:"depth"`           // mean number in flight while at least one was
	BusySeconds    float64  `json:"busy_seconds"`    // time with at least one in flight
}

// tiers sets the counters of the tiers to their change between two moments.
func (r *benchResult) tiers(before, after dispatch.Status) {
	r.Tiers = map[devicemap.Device]dispatch.TierStatus{}
	for tier, n := range after.Tiers {
		b := before.Tiers[tier]
		r.Tiers[tier] = dispatch.TierStatus{Hits: n.Hits - b.Hits, Misses: n.Misses - b.Misses, Evictions: n.Evictions - b.Evictions,
			StallSeconds: n.StallSeconds - b.StallSeconds}
	}
	a, b := after.Reads, before.Reads
	latency, busy := (a.Latency - b.Latency).Seconds(), (a.Busy - b.Busy).Seconds()
	r.Reads = benchReads{Count: a.Reads - b.Reads, Retries: a.Repeats - b.Repeats, BusySeconds: busy}
	if n := r.Reads.Count; n > 0 {
		r.Reads.LatencySeconds, r.Reads.Depth = pointer(latency/float64(n)), pointer(latency/max(busy, 1e-9))
	}
}

// baseRates are the rates of a model without its adapters, measured just before.
type baseRates struct {
	Prompt *float64 `json:"prompt_tokens_per_second"`
	Decode *float64 `json:"decode_tokens_per_second"`
}

// adapter returns the adapter of sequence i, or "" for none.
func (r *benchResult) adapter(i int) string {
	if len(r.Adapters) == 0 {
		return ""
	}
	return r.Adapters[i%len(r.Adapters)]
}

// expertCounts counts requests for routed experts, by whether they were in memory or had to be
// read, and the experts evicted for them.
type expertCounts struct {
	Hits      int64   `json:"hits"`
	Misses    int64   `json:"misses"`
	Evictions int64   `json:"evictions"`
	Early     int64   `json:"early"` // misses that were requested before their router had chosen them
	HitRate   float64 `json:"hit_rate"`
}

// count sets the counts to the change between two states of the counters.
func (r *benchResult) count(before, after dispatch.ExpertCounts) {
	e := expertCounts{Hits: after.Hits - before.Hits, Misses: after.Misses - before.Misses, Evictions: after.Evictions - before.Evictions,
		Early: after.Early - before.Early}
	if all := e.Hits + e.Misses; all > 0 {
		e.HitRate = float64(e.Hits) / float64(all)
		r.Experts = &e
	}
}

func pointer(v float64) *float64 { return &v }

func rate(n float64, took time.Duration) *float64 { return pointer(n / max(took.Seconds(), 1e-9)) }

// share computes the mean of the rates in Roofs and the achieved shares of it.
func (r *benchResult) share(skeleton *meta.Model) {
	operations, bits := promptOperations(skeleton, r.PromptTokens)
	roofs := promptRoofs(r.Variant, r.Quantize, bits)
	var memory, disk []float64
	peaks := map[string][]float64{}
	for _, roof := range r.Roofs {
		if m := roof.MemoryAt(r.Threads); m > 0 {
			memory = append(memory, m)
		}
		for _, name := range roofs {
			if p := roof.PeakOf(name); p > 0 {
				peaks[name] = append(peaks[name], p)
			}
		}
		if roof.Disk != nil {
			disk = append(disk, roof.Disk.BytesPerSecond)
		}
	}
	r.MemoryReadBytesPerSecond, r.DiskProbeBytesPerSecond = mean(memory), mean(disk)
	if r.MemoryReadBytesPerSecond != nil && r.DecodeBytesPerSecond != nil {
		r.DecodeRoofShare = pointer(*r.DecodeBytesPerSecond / *r.MemoryReadBytesPerSecond)
	}
	if r.PromptTokensPerSecond != nil && operations > 0 {
		r.PromptOperationsPerSecond = pointer(operations * *r.PromptTokensPerSecond / float64(r.PromptTokens))
		for _, name := range roofs {
			if peak := mean(peaks[name]); peak != nil && (r.PromptRoof == "" || *mean(peaks[r.PromptRoof]) < *peak) {
				r.PromptRoof, r.PromptRoofShare = name, pointer(*r.PromptOperationsPerSecond / *peak)
			}
		}
	}
}

func mean(list []float64) *float64 {
	if len(list) == 0 {
		return nil
	}
	sum := 0.0
	for _, v := range list {
		sum += v
	}
	return pointer(sum / float64(len(list)))
}

// compared are the fields for which --compare prints ratios.
var compared = []string{"prompt_tokens_per_second", "decode_tokens_per_second", "time_to_first_token_seconds",
	"decode_bytes_per_second", "memory_read_bytes_per_second", "decode_roof_share", "prompt_roof_share", "disk_bytes_per_token",
	"disk_bytes_per_second", "disk_probe_bytes_per_second", "allocations_per_token"}

// readOther reads the output of an earlier bench. It returns nil if path is empty.
func readOther(path string) (map[string]any, error) {
	if path == "" {
		return nil, nil
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var other map[string]any
	var kind *json.UnmarshalTypeError
	if err := json.Unmarshal(b, &other); errors.As(err, &kind) {
		return nil, fmt.Errorf("got JSON of type %s, want the object that bench --json prints", kind.Value)
	} else if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(compared, func(name string) bool { _, there := other[name]; return there }) {
		return nil, errors.New("got none of the numbers of bench, want the output of serve bench --json")
	}
	return other, nil
}

// ratios returns r's numbers divided by those of other, if other's is not 0.
func ratios(r *benchResult, other map[string]any) (map[string]float64, error) {
	if other == nil {
		return nil, nil
	}
	b, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	var own map[string]any
	if err := json.Unmarshal(b, &own); err != nil {
		return nil, err
	}
	out := map[string]float64{}
	for _, name := range compared {
		a, ok1 := own[name].(float64)
		b, ok2 := other[name].(float64)
		if ok1 && ok2 && b != 0 {
			out[name] = a / b
		}
	}
	return out, nil
}

// beside returns the rate with adapters as a share of the rate of the base model.
func beside(with, base *float64) string {
	if with == nil || base == nil {
		return ""
	}
	return fmt.Sprintf(", %.3f of it with adapters", *with / *base)
}

func (r *benchResult) print(out cmdline.Output) error {
	line := func(format string, v *float64, scale float64, more string) {
		if v != nil {
			fmt.Fprintf(out, format+more+"\n", *v/scale)
		}
	}
	fmt.Fprintf(out, "%s: %s, %s kernels, weights %s, quantize %s, compress %s\n", r.Model, cmdline.Count(r.Threads, "thread"), r.Variant, r.Weights, r.Quantize, r.Compress)
	line("prompt        %9.1f tokens/s", r.PromptTokensPerSecond, 1, fmt.Sprintf(" of %d", r.PromptTokens))
	line("  operations  %9.1f G/s", r.PromptOperationsPerSecond, 1e9, "")
	line("  share       %9.1f %%", r.PromptRoofShare, 0.01, " of "+r.PromptRoof)
	line("first token   %9.3f s", &r.TimeToFirstTokenSeconds, 1, "")
	line("decode        %9.2f tokens/s", r.DecodeTokensPerSecond, 1, fmt.Sprintf(", %d of each of %d sequences", r.DecodeTokens, r.Batch))
	line("  weights     %9.2f GB/s", r.DecodeBytesPerSecond, 1e9, "")
	line("  memory reads %8.2f GB/s", r.MemoryReadBytesPerSecond, 1e9, "")
	line("  share       %9.1f %%", r.DecodeRoofShare, 0.01, "")
	if p := r.Promotion; p != nil {
		line("  mapped      %9.2f tokens/s before promotion", p.Before, 1, "")
		line("  promoting   %9.2f tokens/s", p.During, 1, fmt.Sprintf(", for %.2f s", p.Seconds))
	}
	if n := r.Settling; n != nil {
		line("  settling    %9.1f MiB per token from the disk", &n.DiskBytesPerToken, 1<<20, fmt.Sprintf(", for %d tokens before the measured ones", n.Tokens))
	}
	line("  disk        %9.2f GB/s", r.DiskBytesPerSecond, 1e9, "")
	line("  disk reads  %9.2f GB/s", r.DiskProbeBytesPerSecond, 1e9, "")
	line("  waited      %9.2f s for the disk", r.StallSeconds, 1, "")
	if n := r.Tiers[devicemap.Disk]; n.Hits+n.Misses > 0 {
		line("  hits        %9.1f %%", pointer(float64(n.Hits)/float64(n.Hits+n.Misses)), 0.01, fmt.Sprintf(", %d of %d units and experts of the disk tier", n.Hits, n.Hits+n.Misses))
	}
	line("  reads       %9.2f ms", r.Reads.LatencySeconds, 1e-3, fmt.Sprintf(" each, %d reads", r.Reads.Count))
	line("  depth       %9.2f reads in flight", r.Reads.Depth, 1, "")
	line("  allocations %9.1f per token", r.AllocationsPerToken, 1, "")
	if b := r.Base; b != nil {
		fmt.Fprintf(out, "with adapters: %s; the base alone:\n", strings.Join(r.Adapters, ", "))
		line("  prompt      %9.1f tokens/s", b.Prompt, 1, beside(r.PromptTokensPerSecond, b.Prompt))
		line("  decode      %9.2f tokens/s", b.Decode, 1, beside(r.DecodeTokensPerSecond, b.Decode))
	}
	if r.Predicted != nil {
		fmt.Fprintln(out, "plan")
	}
	r.against(out, "memory", func(s *benchSpeed) *float64 { return s.MemoryBytes }, 1<<20, "MiB")
	if e := r.Experts; e != nil {
		fmt.Fprintf(out, "experts       %9.1f %% in memory: %d hits, %d misses (%d requested early), %d evictions\n", 100*e.HitRate, e.Hits, e.Misses, e.Early, e.Evictions)
	}
	r.against(out, "disk reads", func(s *benchSpeed) *float64 { return s.DiskBytesPerToken }, 1<<20, "MiB per token")
	r.against(out, "first token", func(s *benchSpeed) *float64 { return s.FirstTokenSeconds }, 1, "s")
	r.against(out, "decode", func(s *benchSpeed) *float64 { return s.TokensPerSecond }, 1, "tokens/s")
	for _, name := range compared {
		if v, ok := r.Ratios[name]; ok {
			fmt.Fprintf(out, "%9.3f× the other's %s\n", v, name)
		}
	}
	_, err := fmt.Fprintf(out, "%s of weights per token\n", devicemap.FormatSize(r.WeightBytesPerToken))
	return err
}
