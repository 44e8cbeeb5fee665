package dispatch

import (
	"errors"
	"sync"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/internal/backend/cpu"
	"github.com/heftai/heft/internal/residency"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
)

// Compression says when bfloat16 weights are coded in about three quarters of their bytes. Coded weights
// give the same answers bit for bit.
//
// [CompressAuto] codes weights
//   - if all of them then fit in memory and otherwise would not,
//   - if all fit anyway and generated tokens are measured to be faster with coded ones,
//   - if some stay on the disk and an earlier start with [CompressExact] has left them coded in a file,
//   - else those in memory alone, if a token then reads a tenth less from the disk.
type Compression uint8

// The choices of compression.
const (
	CompressNone  Compression = iota // use weights as stored
	CompressAuto                     // code them where that pays
	CompressExact                    // code all weights that get a tenth smaller or more, on the disk in a file of CacheDir
)

// ParseCompression returns the compression called auto, exact or none.
func ParseCompression(name string) (Compression, bool) {
	switch name {
	case "none", "":
		return CompressNone, true
	case "auto":
		return CompressAuto, true
	case "exact":
		return CompressExact, true
	}
	return CompressNone, false
}

// String returns the name that [ParseCompression] reads.
func (c Compression) String() string {
	switch c {
	case CompressAuto:
		return "auto"
	case CompressExact:
		return "exact"
	}
	return "none"
}

// loadedAs is the format that weights are converted or coded to, or QuantNone.
func (o *Options) loadedAs() meta.QuantFormat {
	if o.coded {
		return meta.QuantCoded
	}
	return o.Quantize
}

// loadedBytes returns the sizes of parameters that are converted or coded when they are loaded.
func (o *Options) loadedBytes(skeleton *meta.Model) map[*meta.Param]int64 {
	if o.coded {
		return o.codedBytes(skeleton)
	}
	return skeleton.Root.LoadedBytes(o.Quantize, true)
}

// KnownCoding returns o with what an earlier start of the model has recorded in CacheDir: which matrices coding does
// not make smaller. Plans count these as stored, and weights on the disk too if their file cannot be written there. It
// reads no weight. Without a checkpoint nothing is known.
func (o Options) KnownCoding(skeleton *meta.Model, checkpoint *loader.Checkpoint) Options {
	if o.Compress == CompressNone || o.Quantize != meta.QuantNone {
		return o
	}
	if o.Compress == CompressAuto {
		o.measureCoded()
	}
	if checkpoint == nil {
		return o
	}
	o.canKeep = sync.OnceValue(func() error {
		var bytes int64
		for _, n := range o.mayBeCoded(skeleton) {
			bytes += n
		}
		return residency.CanKeep(o.CacheDir, checkpoint, meta.QuantCoded, bytes)
	})
	sizes, found := residency.KnownSizes(o.CacheDir, checkpoint, cpu.NewCoder(1))
	if !found {
		return o
	}
	o.keptCodes = residency.HasSidecar(o.CacheDir, checkpoint, meta.QuantCoded)
	o.codedSizes = map[*meta.Param]int64{}
	for path, p := range skeleton.Root.AllParams() {
		if n := sizes[path]; n > 0 && p.SameAs == nil {
			o.codedSizes[p] = min(n, p.Bytes())
		}
	}
	return o
}

// codedBytes returns the sizes of parameters that are coded. Of a stack some experts may be used as stored.
func (o *Options) codedBytes(skeleton *meta.Model) map[*meta.Param]int64 {
	out := o.mayBeCoded(skeleton)
	for p, n := range o.codedSizes {
		if n >= p.Bytes() || len(p.Shape) == 2 {
			delete(out, p)
		} else if out[p] > 0 {
			out[p] = n
		}
	}
	o.leaveUnkept(out)
	return out
}

// convertedBytes returns the sizes of parameters that [residency.New] converts: also those that it leaves as stored,
// which the file of coded weights names.
func (o *Options) convertedBytes(skeleton *meta.Model) map[*meta.Param]int64 {
	if o.coded {
		out := o.mayBeCoded(skeleton)
		o.leaveUnkept(out)
		return out
	}
	return o.loadedBytes(skeleton)
}

// mostCoded is the largest share of its plain size that a coded matrix may have.
func (o *Options) mostCoded() float64 {
	if o.inside.CodedShare > 0 {
		return o.inside.CodedShare
	}
	return meta.CodedShare
}

// LoadedAs returns the format that weights are converted to when they are loaded: that of Quantize,
// QuantCoded after a [Plan] that codes them, or QuantNone.
func (o *Options) LoadedAs() meta.QuantFormat { return o.loadedAs() }

// LoadedAs returns the format that the model's weights are converted to when they are loaded: that of
// Quantized, or QuantCoded if they are coded, or QuantNone.
func (m *Model) LoadedAs() meta.QuantFormat { return m.options.loadedAs() }

// mayCode reports whether a plan still has to decide if weights are coded.
func (o *Options) mayCode(skeleton *meta.Model) bool {
	return o.Compress != CompressNone && !o.coded && o.Quantize == meta.QuantNone && len(o.codedBytes(skeleton)) > 0
}

// withCodes turns coding on if the options ask for it and no plan has decided otherwise.
func (o Options) withCodes(skeleton *meta.Model) Options {
	o.coded = o.coded || o.Compress == CompressExact && o.mayCode(skeleton)
	return o
}

// planCoded is [Planner.Plan] with coded weights if o asks for them, or if that pays; see [CompressAuto].
func (p *Planner) planCoded(o Options) (devicemap.Plan, Options, error) {
	coded := o
	coded.coded = true
	if o.Compress == CompressExact {
		plan, planned, err := p.planExact(coded)
		var folder *QuantizeError
		if errors.As(err, &folder) {
			o.Compress = CompressNone
			if plan, planned, err = p.planAs(o); err == nil {
				plan.Warnings = append(plan.Warnings, "weights are not coded: GPUs do not use coded weights")
			}
		}
		return plan, planned, err
	}
	o.Compress = CompressNone
	plan, planned, err := p.planAs(o)
	if err != nil || usesGPU(&plan) {
		return plan, planned, err
	}
	if !onDisk(&plan) {
		return p.planFaster(coded, plan, planned)
	}
	return p.planSmaller(coded, plan, planned)
}

// codedSaves is how many times fewer bytes a token must read from the disk if weights in memory are coded, so that they
// are. It pays for coding them at each start.
const codedSaves = 1.1

// planSmaller is a plan in which all weights fit in memory because they are coded. Otherwise it is one of coded weights that
// reads less from the disk than plan does. Weights on the disk are coded only if an earlier start has left them so: a
// start writes such a file only if it is told to.
func (p *Planner) planSmaller(coded Options, plan devicemap.Plan, planned Options) (devicemap.Plan, Options, error) {
	all, with, err := p.planAs(coded)
	if err == nil && !onDisk(&all) {
		return all, with, nil
	}
	if err = ignoreDisk(err); err != nil || coded.storedStreams {
		return plan, planned, nil
	}
	if coded.keptCodes {
		if kept, with, err := p.planKept(coded, all, with, nil); err == nil && kept.DiskBytesPerToken < plan.DiskBytesPerToken {
			return kept, with, nil
		}
	}
	smaller, with, err := p.planInMemory(coded, all)
	if err == nil && with.coded && codedSaves*float64(smaller.DiskBytesPerToken) <= float64(plan.DiskBytesPerToken) {
		return smaller, with, nil
	}
	return plan, planned, nil
}

// onDisk reports whether a plan has weights on disk.
func onDisk(plan *devicemap.Plan) bool {
	return plan.Device(devicemap.Disk).WeightsBytes > 0
}

// codedShare is the size of coded weights over that of plain ones, for all matrices together.
func codedShare(skeleton *meta.Model) float64 {
	var plain, saved int64
	for _, p := range skeleton.Root.AllParams() {
		if len(p.Shape) >= 2 && p.SameAs == nil {
			plain += p.Bytes()
		}
	}
	for p, n := range skeleton.Root.Coded(meta.CodedShare) {
		saved += p.Bytes() - n
	}
	if plain == 0 {
		return 1
	}
	return 1 - float64(saved)/float64(plain)
}

// A Coding describes the coded weights of a plan; see [Options.Compress].
type Coding struct {
	PlainBytes int64 `json:"plain_bytes"` // of all weights, as stored
	Bytes      int64 `json:"bytes"`       // of all weights, coded
	LimitBytes int64 `json:"limit_bytes"` // of the cpu
	Fits       bool  `json:"fits"`        // in memory, all of them
	// Found says that an earlier start has recorded which matrices coding does not make smaller. Otherwise all are
	// counted in their coded size.
	Found bool `json:"found"`
	// Gain is how many times faster coded weights are than plain ones in memory here, if they are coded for that.
	Gain float64 `json:"gain,omitempty"`
	// Kept says that an earlier start has written all coded weights to the cache folder, from which they stream. The first
	// start does, if some are on the disk and InMemory is false.
	Kept bool `json:"kept,omitempty"`
	// InMemory says that weights on the disk are read as stored, and only those in memory are coded.
	InMemory bool `json:"in_memory,omitempty"`
}

// CodingOf describes the coded weights of a plan, for the options that Plan returned with it. It
// returns nil if no weights are coded.
func CodingOf(skeleton *meta.Model, plan *devicemap.Plan, o *Options) *Coding {
	if !o.coded {
		return nil
	}
	c := &Coding{Gain: o.gain, LimitBytes: plan.Device(devicemap.CPU).LimitBytes, Fits: !onDisk(plan), Found: o.codedSizes != nil,
		Kept: o.keptCodes, InMemory: o.unkept != nil}
	coded := o.codedBytes(skeleton)
	for _, p := range skeleton.Root.AllParams() {
		if p.SameAs != nil {
			continue
		}
		n := p.Bytes()
		c.PlainBytes += n
		if coded[p] > 0 {
			n = coded[p]
		}
		c.Bytes += n
	}
	return c
}
