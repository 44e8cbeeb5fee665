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

// Compression says when bfloat16 weights are coded. Coding is lossless compression to about three
// quarters of the bytes: coded weights give the same answers bit for bit.
//
// [CompressAuto] codes
//   - all weights, if they fit in memory only when coded,
//   - all weights, if they fit anyway and coded weights are measured to generate tokens faster,
//   - all weights, if some stay on the disk and an earlier start with [CompressExact] has
//     written the coded weights to a file,
//   - otherwise only the weights in memory, if a token then reads a tenth less from the disk.
type Compression uint8

// The kinds of compression.
const (
	CompressNone  Compression = iota // use weights as stored
	CompressAuto                     // code weights if that pays
	CompressExact                    // code all weights that get a tenth smaller or more; those on the disk in a file of CacheDir
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

// loadedAs returns the format that weights are converted or coded to, or QuantNone.
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

// KnownCoding returns o with the findings of earlier starts in CacheDir: the matrices that coding
// does not make smaller. Plans count these matrices as stored, and also weights on the disk if
// their coded file cannot be written. KnownCoding reads no weight. Without a checkpoint it
// returns o unchanged.
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

// codedBytes returns the sizes of parameters that are coded. In a stack of experts, some experts
// may be used as stored.
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

// convertedBytes returns the sizes of parameters that [residency.New] converts. It includes
// parameters that residency leaves as stored, because the file of coded weights names them.
func (o *Options) convertedBytes(skeleton *meta.Model) map[*meta.Param]int64 {
	if o.coded {
		out := o.mayBeCoded(skeleton)
		o.leaveUnkept(out)
		return out
	}
	return o.loadedBytes(skeleton)
}

// mostCoded is the maximum size of a coded matrix, as a share of its plain size.
func (o *Options) mostCoded() float64 {
	if o.inside.CodedShare > 0 {
		return o.inside.CodedShare
	}
	return meta.CodedShare
}

// LoadedAs returns the format that weights are converted to when they are loaded. That is the
// format of Quantize, QuantCoded if [Plan] chose coded weights, or QuantNone.
func (o *Options) LoadedAs() meta.QuantFormat { return o.loadedAs() }

// LoadedAs returns the format that the model's weights are converted to when they are loaded: the
// result of Quantized, QuantCoded if they are coded, or QuantNone.
func (m *Model) LoadedAs() meta.QuantFormat { return m.options.loadedAs() }

// mayCode reports whether a plan still has to decide if weights are coded.
func (o *Options) mayCode(skeleton *meta.Model) bool {
	return o.Compress != CompressNone && !o.coded && o.Quantize == meta.QuantNone && o.codesAny(skeleton)
}

// withCodes turns coding on if the options ask for it and no plan has decided otherwise.
func (o Options) withCodes(skeleton *meta.Model) Options {
	o.coded = o.coded || o.Compress == CompressExact && o.mayCode(skeleton)
	return o
}

// planCoded is [Planner.Plan] with coded weights if o requires them or if they pay; see
// [CompressAuto].
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

// codedSaves is the minimum factor by which coding weights in memory must reduce the disk reads
// of a token. The reduction has to pay for coding the weights at each start.
const codedSaves = 1.1

// planSmaller returns a plan in which all weights fit in memory because they are coded. If there
// is none, it returns a plan with coded weights that reads less from the disk than plan does. It
// codes weights on the disk only if an earlier start has written their file: a start writes this
// file only if the user asks for it.
func (p *Planner) planSmaller(coded Options, plan devicemap.Plan, planned Options) (devicemap.Plan, Options, error) {
	all, with, err := p.planAs(coded)
	if err == nil && !onDisk(&all) {
		return all, with, nil
	}
	if err = ignoreDisk(err); err != nil || coded.storedStreams || plan.DiskBytesPerToken == 0 {
		return plan, planned, nil // if nothing is read, lent memory keeps the streamed matrices
	}
	if coded.keptCodes {
		if kept, with, err := p.planKept(coded, all, with, nil); err == nil && kept.DiskBytesPerToken < plan.DiskBytesPerToken {
			return kept, with, nil
		}
	}
	smaller, with, err := p.planInMemory(coded)
	if err == nil && with.codesAny(p.skeleton) && codedSaves*float64(smaller.DiskBytesPerToken) <= float64(plan.DiskBytesPerToken) {
		return smaller, with, nil
	}
	return plan, planned, nil
}

// onDisk reports whether a plan has weights on the disk.
func onDisk(plan *devicemap.Plan) bool {
	return plan.Device(devicemap.Disk).WeightsBytes > 0
}

// codedShare returns the size of coded weights divided by that of plain ones, over all matrices.
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
	PlainBytes int64 `json:"plain_bytes"` // of all weights as stored
	Bytes      int64 `json:"bytes"`       // of all weights when coded
	LimitBytes int64 `json:"limit_bytes"` // the limit of the cpu
	Fits       bool  `json:"fits"`        // whether all weights fit in memory
	// Found reports that an earlier start has recorded which matrices coding does not make
	// smaller. Otherwise all of them are counted at their coded size.
	Found bool `json:"found"`
	// Gain is the speedup of coded weights in memory over plain ones on this machine. It is 0 if
	// the weights are coded for another reason.
	Gain float64 `json:"gain,omitempty"`
	// Kept reports that an earlier start has written all coded weights to the cache folder, from
	// which they stream. If it is false, some weights are on the disk, and InMemory is false, the
	// first start writes them.
	Kept bool `json:"kept,omitempty"`
	// InMemory reports that only weights in memory are coded. Weights on the disk are read as
	// stored.
	InMemory bool `json:"in_memory,omitempty"`
}

// CodingOf describes the coded weights of a plan. o are the options that Plan returned with it.
// It returns nil if no weights are coded.
func CodingOf(skeleton *meta.Model, plan *devicemap.Plan, o *Options) *Coding {
	if !o.coded {
		return nil
	}
	c := &Coding{Gain: o.gain, LimitBytes: plan.Device(devicemap.CPU).LimitBytes, Fits: !onDisk(plan), Found: o.codedSizes != nil,
		Kept: o.keptCodes, InMemory: o.inMemory}
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
