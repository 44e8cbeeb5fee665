package placement

import (
	"sort"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/internal/nn"
	"github.com/heftai/heft/meta"
)

// A Fit lists changes of settings after which no weight needs the disk tier. dispatch.Fit explains
// its fields.
type Fit struct {
	Context, MaxSequences int
	Quantize              meta.QuantFormat
	LimitBytes            int64
}

// FitsWith returns the changes that would keep all weights in memory. o are the settings that were
// given to plan, and plan is its result. fitsWith returns false if the plan has no weight on the
// disk, or if the user placed weights there.
func (p *Planner) FitsWith(o Settings, plan devicemap.Plan) (*Fit, bool) {
	host := plan.Device(devicemap.CPU)
	left := plan.Device(devicemap.Disk).WeightsBytes
	if left == 0 || host.LimitBytes == 0 || o.DeviceMap.Pins.Len() > 0 {
		return nil, false
	}
	program, err := p.compiled()
	if err != nil {
		return nil, false
	}
	skeleton, asked := p.skeleton, o
	asked.scratches, asked.Threads = newScratches(p.sizers), o.withDefaults(skeleton).Threads
	base := need{skeleton: skeleton, program: program, fixed: host.RuntimeBytes, runtime: p.runtimeBytes(), weights: host.WeightsBytes + left, serving: o.Serving}
	base.adapters, _, err = o.adapterBytes(skeleton, program)
	if err != nil {
		return nil, false
	}
	limit := host.LimitBytes
	fits := func(o Settings, more int64) bool { return base.bytes(o, limit)+more <= limit }

	out, kv := &Fit{}, asked
	if first := newKVRoom(skeleton, program, &kv).tokens; first > 0 && !(o.KVTokens > 0 || o.KVBytes > 0) {
		out.Context = sort.Search(first, func(n int) bool {
			kv := asked
			kv.Context = n + 1
			return !fits(kv, 0)
		})
		out.Context = out.Context / contextStep * contextStep
	}
	for n := asked.MaxSequences; n > 1 && out.MaxSequences == 0; {
		n /= 2
		fewer := asked
		if fewer.MaxSequences = n; fits(fewer, 0) {
			out.MaxSequences = n
		}
	}
	if asked.Quantize == meta.QuantNone {
		for _, f := range meta.Conversions() {
			if saved := converted(skeleton, f); saved < 0 && fits(asked, saved) {
				out.Quantize = f
				break
			}
		}
	}
	out.LimitBytes = base.limit(asked)
	return out, true
}

// contextStep is the granularity of suggested contexts, in tokens.
const contextStep = 256

// need is the memory of a model with all weights in memory.
type need struct {
	skeleton *meta.Model
	program  *nn.Program
	weights  int64
	adapters int64
	fixed    int64 // of the runtime, if the limit includes it
	runtime  int64
	serving  bool
}

// bytes returns the memory needed under a limit. It depends on the limit because the memory for
// requests does.
func (n *need) bytes(o Settings, limit int64) int64 {
	o.leastScratch = true // as a plan takes where more does not fit
	kv := newKVRoom(n.skeleton, n.program, &o)
	total := n.weights + n.adapters + o.activationBytes(n.skeleton, n.program, o.Limits()) + kv.sequence + n.fixed
	if n.serving {
		total += RequestBytes(limit)
	}
	return total
}

// limit returns the smallest limit that holds the model, in whole MiB.
func (n *need) limit(o Settings) int64 {
	const step = 1 << 20
	if n.fixed == 0 && n.bytes(o, 0) >= runtimeFrom {
		n.fixed = n.runtime
	}
	limit := int64(0)
	for range 8 { // the room for requests is a small share of the limit
		next := (n.bytes(o, limit) + step - 1) / step * step
		if next <= limit {
			break
		}
		limit = next
	}
	return limit
}

// converted returns the change of the weights' size when they are converted to f, or 0 if none
// can be.
func converted(skeleton *meta.Model, f meta.QuantFormat) int64 {
	change := int64(0)
	for p, bytes := range skeleton.Root.LoadedBytes(f, true) {
		change += bytes - p.Bytes()
	}
	return change
}
