package devicemap

import (
	"fmt"
	"slices"
)

// A Budget is what one device may hold, in bytes.
type Budget struct {
	Device Device
	// Limit bounds everything that Heft keeps on the device. It is ignored for the disk, which
	// has no limit and may be omitted.
	Limit int64
	// KV, Activations and Staging are reserved for the KV cache, for activations and for staging.
	// Solve adds the staging memory that weights from the disk need on the CPU.
	KV, Activations, Staging int64
	// Requests is reserved for requests being read and answers waiting to be sent. Runtime is
	// reserved for the Go runtime, the tokenizer and the program; on a GPU, for operands and
	// scratch memory of kernels.
	Requests, Runtime int64
}

// room returns what a budget leaves for weights if the KV cache is reduced to kv.
func (b *Budget) room(kv int64) int64 { return b.Limit - kv - b.fixed() }

// fixed returns what the budget reserves whatever is placed.
func (b *Budget) fixed() int64 { return b.Activations + b.Staging + b.Requests + b.Runtime }

// DevicePlan is the memory that a plan uses on one device, in bytes.
type DevicePlan struct {
	Device          Device `json:"device"`
	LimitBytes      int64  `json:"limit_bytes"` // 0 for the disk
	WeightsBytes    int64  `json:"weights_bytes"`
	KVBytes         int64  `json:"kv_bytes"`
	ActivationBytes int64  `json:"activation_bytes"`
	StagingBytes    int64  `json:"staging_bytes"`
	RequestBytes    int64  `json:"request_bytes,omitempty"`
	RuntimeBytes    int64  `json:"runtime_bytes,omitempty"`
}

// Used returns the sum of the plan's memory on the device.
func (d DevicePlan) Used() int64 {
	return d.WeightsBytes + d.KVBytes + d.ActivationBytes + d.StagingBytes + d.RequestBytes + d.RuntimeBytes
}

// A Plan says where each part of a model is placed and what memory that takes. Its JSON has the
// fields of `serve plan --json` that do not depend on measurements.
type Plan struct {
	Policy PolicyKind `json:"policy"`
	// Map has one entry for each unit, in tree order. They cover every parameter and buffer of
	// the model.
	Map     Map          `json:"device_map"`
	Devices []DevicePlan `json:"devices"` // GPUs, mps, CPU, disk
	// Least is the minimum memory on the CPU for weights that are not on a GPU. It includes two
	// of the largest bands in which matrices stream, the weights of a block without bands, twice
	// the largest expert, the units that are smaller than the memory to stream them, the KV cache
	// of one sequence, and the activations. Weights that are pinned to the disk stream.
	Least int64 `json:"least_bytes"`
	// BelowLeast reports that the CPU's limit is less than Least. The plan then exceeds the
	// limit.
	BelowLeast bool `json:"below_least,omitempty"`
	// DiskBytesPerToken is the number of bytes that one token reads from the disk.
	DiskBytesPerToken int64 `json:"disk_bytes_per_token"`
	// ExpertBytesPerToken is the part of DiskBytesPerToken that are routed experts. Solve counts
	// all experts that a token selects. The caller subtracts those in a cache; see
	// [Plan.CacheExperts].
	ExpertBytesPerToken int64 `json:"expert_bytes_per_token,omitempty"`
	// ExpertCacheBytes is the part of the CPU's staging memory that caches routed experts of the
	// disk. ExpertHitRate is the share of the selected experts that the cache is expected to
	// hold.
	ExpertCacheBytes int64   `json:"expert_cache_bytes,omitempty"`
	ExpertHitRate    float64 `json:"expert_hit_rate,omitempty"`
	// LentBytes is memory that the KV cache and requests do not use, and that is expected to hold
	// weights of the disk: matrices that would stream, and experts beyond ExpertCacheBytes.
	LentBytes int64 `json:"lent_bytes,omitempty"`
	// StreamPrompts is the minimum length, in tokens, of prompts that compute blocks of the CPU
	// and the disk on StreamDevice, a GPU to which the weights stream. 0 means none. The caller
	// sets it.
	StreamPrompts int    `json:"stream_prompts,omitempty"`
	StreamDevice  Device `json:"stream_device,omitempty"`
	// ExpertPlacement explains why blocks and their routed experts are on the same devices or
	// not, if a GPU has no room for all of them. The caller sets it.
	ExpertPlacement string `json:"expert_placement,omitempty"`
	// ExpertHitsFrom says in a few words how ExpertHitRate was predicted. The caller sets it.
	ExpertHitsFrom string `json:"expert_hits_from,omitempty"`
	// Warnings are one sentence each. Neither Render nor Explain prints them: the caller does,
	// once.
	Warnings []string `json:"warnings,omitempty"`

	units         []unit
	kept          int64 // bytes of matrices in lent memory that a token reads; see KeepStreamed
	keptFree      int64 // part of the plan's free memory that these matrices take
	lentToExperts int64 // part of LentBytes
}

// Device returns the plan of device d.
func (p Plan) Device(d Device) DevicePlan {
	for _, plan := range p.Devices {
		if plan.Device == d {
			return plan
		}
	}
	return DevicePlan{Device: d}
}

// TokenReads returns the bytes of weights on device d that one token reads. Of a stack of experts
// it counts those that a token selects.
func (p *Plan) TokenReads(d Device) (sum int64) {
	for i := range p.units {
		if u := &p.units[i]; u.at == d {
			sum += u.reads
		}
	}
	return sum
}

// stagingOf returns the staging memory of units on the disk, and the path of the largest one.
// Parts of one unit stream together, experts one by one.
func stagingOf(units []unit, tight bool) (bytes int64, largest string) {
	sums := make([]int64, len(units))
	var stream, expert int64
	var bands passage
	for i := range units {
		u := &units[i]
		if u.at != Disk {
			continue
		}
		expert = max(expert, u.expert)
		bands.addBands(u.passage)
		whole := u.wholeOr(i)
		if sums[whole] += u.stream; sums[whole] > stream {
			stream, largest = sums[whole], units[whole].path
		}
	}
	return windowBytes(stream) + bands.window(tight) + 2*expert, largest
}

// wholeOr returns the index of the unit of which u is a part, or i if it is not a part.
func (u *unit) wholeOr(i int) int {
	if u.whole >= 0 {
		return u.whole
	}
	return i
}

// finish returns the plan of placed units.
func finish(units []unit, least int64, tight bool, budgets []Budget, p Policy) Plan {
	plan := Plan{Policy: p.Kind, units: units}
	weights := map[Device]int64{}
	for i := range units {
		u := &units[i]
		if u.home >= 0 && u.pin == "" {
			u.at = units[u.home].at
		}
		u.settle(u.at)
		if u.whole < 0 || u.pin != "" || u.at != units[u.whole].at {
			plan.Map.Set(u.path, u.at)
		}
		weights[u.at] += u.bytes
		if u.at == Disk {
			plan.DiskBytesPerToken += u.reads
			plan.ExpertBytesPerToken += u.expertReads
		}
	}
	staging, largest := stagingOf(units, tight)
	host := hostOf(budgets)
	for i, b := range budgets {
		d := DevicePlan{Device: b.Device, LimitBytes: b.Limit, WeightsBytes: weights[b.Device],
			KVBytes: b.KV, ActivationBytes: b.Activations, StagingBytes: b.Staging, RequestBytes: b.Requests, RuntimeBytes: b.Runtime}
		if i == host {
			d.StagingBytes += staging
			d.KVBytes = b.kvBeside(d.WeightsBytes+staging, p.SequenceKV)
			plan.Least = least + b.fixed() + b.leastKV(p.SequenceKV)
			plan.BelowLeast = b.Limit < plan.Least
		}
		plan.Devices = append(plan.Devices, d)
	}
	plan.warn(host, largest)
	return plan
}

// warn adds warnings where the plan exceeds a limit.
func (p *Plan) warn(host int, largest string) {
	for i, d := range p.Devices {
		switch {
		case i == host && p.BelowLeast:
			p.Warnings = append(p.Warnings, fmt.Sprintf("%s: a limit of %s is below the minimum, %s; the plan takes the minimum: raise the limit (--max-memory, or that of the control group) or lower --max-model-len",
				d.Device, FormatSize(d.LimitBytes), FormatSize(p.Least)))
		case d.Device != Disk && d.Used() > d.LimitBytes:
			w := fmt.Sprintf("%s: the plan takes %s, %s more than the limit", d.Device, FormatSize(d.Used()), FormatSize(d.Used()-d.LimitBytes))
			if i == host && d.StagingBytes > 0 && largest != "" {
				w += fmt.Sprintf(", %s of it for %s and others to stream", FormatSize(d.StagingBytes), largest)
			}
			p.Warnings = append(p.Warnings, w)
		}
	}
}

// leastKV returns the minimum size of KV.
func (b *Budget) leastKV(sequence int64) int64 {
	if sequence <= 0 {
		return b.KV
	}
	return min(b.KV, sequence)
}

// kvBeside returns the memory for the KV cache next to other bytes: the budget's KV, reduced to
// what the limit allows, but at least one sequence.
func (b *Budget) kvBeside(other, sequence int64) int64 {
	return max(min(b.KV, b.room(0)-other), b.leastKV(sequence))
}

// hostOf returns the index of the budget through which weights stream: the CPU's, or else the
// first one other than the disk's; -1 if there is none.
func hostOf(budgets []Budget) int {
	if i := slices.IndexFunc(budgets, func(b Budget) bool { return b.Device == CPU }); i >= 0 {
		return i
	}
	return slices.IndexFunc(budgets, func(b Budget) bool { return b.Device != Disk })
}
