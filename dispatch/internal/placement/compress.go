package placement

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

// LoadedAs returns the format that weights are converted or coded to, or QuantNone.
func (o *Settings) LoadedAs() meta.QuantFormat {
	if o.Coded {
		return meta.QuantCoded
	}
	return o.Quantize
}

// LoadedBytes returns the sizes of parameters that are converted or coded when they are loaded.
func (o *Settings) LoadedBytes(skeleton *meta.Model) map[*meta.Param]int64 {
	if o.Coded {
		return o.codedBytes(skeleton)
	}
	return skeleton.Root.LoadedBytes(o.Quantize, true)
}

// Find returns o with what it finds in CacheDir: whether converted or coded weights can be kept there,
// and from earlier starts the matrices that coding does not make smaller. It reads no weight. Without
// a checkpoint it only prepares the measurement of coded weights.
func (o Settings) Find(skeleton *meta.Model, checkpoint *loader.Checkpoint) Settings {
	if o.Quantize != meta.QuantNone {
		o.findRoom(checkpoint, o.Quantize, func() map[*meta.Param]int64 { return o.LoadedBytes(skeleton) })
		return o
	}
	if o.Compress == CompressNone {
		return o
	}
	if o.Compress == CompressAuto {
		o.measureCoded()
	}
	if checkpoint == nil {
		return o
	}
	o.findRoom(checkpoint, meta.QuantCoded, func() map[*meta.Param]int64 { return o.mayBeCoded(skeleton) })
	sizes, found := residency.KnownSizes(o.CacheDir, checkpoint, cpu.NewCoder(1))
	if !found {
		return o
	}
	o.keptCodes = residency.HasSidecar(o.CacheDir, checkpoint, meta.QuantCoded)
	o.CodedSizes = map[*meta.Param]int64{}
	for path, p := range skeleton.Root.AllParams() {
		if n := sizes[path]; n > 0 && p.SameAs == nil {
			o.CodedSizes[p] = min(n, p.Bytes())
		}
	}
	return o
}

// findRoom prepares the check whether CacheDir can keep weights in a format, if there are files.
func (o *Settings) findRoom(checkpoint *loader.Checkpoint, format meta.QuantFormat, sizes func() map[*meta.Param]int64) {
	if checkpoint == nil || o.CacheDir == "" {
		return
	}
	folder := o.CacheDir
	o.canKeep = sync.OnceValue(func() error {
		var bytes int64
		for _, n := range sizes() {
			bytes += n
		}
		return residency.CanKeep(folder, checkpoint, format, bytes)
	})
}

// codedBytes returns the sizes of parameters that are coded. In a stack of experts, some experts
// may be used as stored.
func (o *Settings) codedBytes(skeleton *meta.Model) map[*meta.Param]int64 {
	out := o.mayBeCoded(skeleton)
	for p, n := range o.CodedSizes {
		if n >= p.Bytes() || len(p.Shape) == 2 {
			delete(out, p)
		} else if out[p] > 0 {
			out[p] = n
		}
	}
	o.leaveStored(out)
	return out
}

// ConvertedBytes returns the sizes of parameters that [residency.New] converts. It includes
// parameters that residency leaves as stored, because the file of coded weights names them.
func (o *Settings) ConvertedBytes(skeleton *meta.Model) map[*meta.Param]int64 {
	if o.Coded {
		out := o.mayBeCoded(skeleton)
		o.leaveStored(out)
		return out
	}
	return o.LoadedBytes(skeleton)
}

// mostCoded is the maximum size of a coded matrix, as a share of its plain size.
func (o *Settings) mostCoded() float64 {
	if o.Test.CodedShare > 0 {
		return o.Test.CodedShare
	}
	return meta.CodedShare
}

// mayCode reports whether a plan still has to decide if weights are coded.
func (o *Settings) mayCode(skeleton *meta.Model) bool {
	return o.Compress != CompressNone && !o.Coded && o.Quantize == meta.QuantNone && o.codesAny(skeleton)
}

// withCodes turns coding on if the options ask for it and no plan has decided otherwise.
func (o Settings) withCodes(skeleton *meta.Model) Settings {
	o.Coded = o.Coded || o.Compress == CompressExact && o.mayCode(skeleton)
	return o
}

// planCoded is [Planner.Plan] with coded weights if o requires them or if they pay; see
// [CompressAuto].
func (p *Planner) planCoded(o Settings) (Placement, error) {
	coded := o
	coded.Coded = true
	if o.Compress == CompressExact {
		exact, err := p.planExact(coded)
		var folder *ConversionError
		if errors.As(err, &folder) {
			o.Compress = CompressNone
			if exact, err = p.planAs(o); err == nil {
				exact.Plan.Warnings = append(exact.Plan.Warnings, "weights are not coded: GPUs do not use coded weights")
			}
		}
		return exact, err
	}
	o.Compress = CompressNone
	stored, err := p.planAs(o)
	if err != nil || usesGPU(&stored.Plan) {
		return stored, err
	}
	if !OnDisk(&stored.Plan) {
		return p.planFaster(coded, stored), nil
	}
	return p.planSmaller(coded, stored), nil
}

// codedSaves is the minimum factor by which coding weights in memory must reduce the disk reads
// of a token. The reduction has to pay for coding the weights at each start.
const codedSaves = 1.1

// planSmaller returns a plan in which all weights fit in memory because they are coded. If there
// is none, it returns a plan with coded weights that reads less from the disk than stored does. It
// codes weights on the disk only if an earlier start has written their file: a start writes this
// file only if the user asks for it.
func (p *Planner) planSmaller(coded Settings, stored Placement) Placement {
	all, err := p.planAs(coded)
	if err == nil && !OnDisk(&all.Plan) {
		return all
	}
	reads := stored.Plan.DiskBytesPerToken
	if err = ignoreDisk(err); err != nil || coded.StoredStreams || reads == 0 {
		return stored // if nothing is read, lent memory keeps the streamed matrices
	}
	if coded.keptCodes {
		if kept, err := p.planKept(coded, all, nil); err == nil && kept.Plan.DiskBytesPerToken < reads {
			return kept
		}
	}
	smaller, err := p.planInMemory(coded)
	if err == nil && smaller.Settings.codesAny(p.skeleton) && codedSaves*float64(smaller.Plan.DiskBytesPerToken) <= float64(reads) {
		return smaller
	}
	return stored
}

// OnDisk reports whether a plan has weights on the disk.
func OnDisk(plan *devicemap.Plan) bool {
	return plan.Device(devicemap.Disk).WeightsBytes > 0
}

// A Coding describes the coded weights of a placement. dispatch.Coding explains its fields.
type Coding struct {
	PlainBytes, Bytes, LimitBytes int64
	Fits, Found                   bool
	Gain                          float64
	Kept, InMemory                bool
}

// Coding describes the coded weights of d. It returns nil if no weights are coded.
func (d *Placement) Coding(skeleton *meta.Model) *Coding {
	o := &d.Settings
	if !o.Coded {
		return nil
	}
	c := &Coding{Gain: o.Gain, LimitBytes: d.Plan.Device(devicemap.CPU).LimitBytes, Fits: !OnDisk(&d.Plan), Found: o.CodedSizes != nil,
		Kept: o.keptCodes, InMemory: o.InMemory}
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

// CodedSize returns the size of the weights that d codes.
func (d *Placement) CodedSize(skeleton *meta.Model) (n int64) {
	for _, bytes := range d.Settings.codedBytes(skeleton) {
		n += bytes
	}
	return n
}
