package dispatch

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch/internal/placement"
	"github.com/heftai/heft/meta"
)

// Plan places the weights of skeleton within the limits of o, with room for the KV cache,
// activations and staging. It returns the plan, and o with the sizes that the plan chose, for
// [New]. It allocates no memory and reads no weight.
//
// Before any weight is placed, the KV cache gets the memory of one sequence of o.Context tokens,
// or of at most 4096 tokens if Context is 0. Afterwards it gets a share of the memory that the
// weights leave. If weights stream from the disk and o.MaxBatchTokens is 0, Plan also chooses the
// tokens of a batch.
//
// Plan returns an error if pins do not fit or name unknown paths. With StrictMemory it also
// returns an error if a limit is below the minimum.
func Plan(skeleton *meta.Model, o Options) (devicemap.Plan, Options, error) {
	return NewPlanner(skeleton).Plan(o)
}

// A Planner plans one model several times, with other limits, numbers of sequences or formats. It
// caches what these plans have in common, so that each plan after the first takes a fraction of
// the time of [Plan]. It is not safe for concurrent use.
type Planner struct {
	skeleton *meta.Model
	planner  *placement.Planner
}

// NewPlanner returns a Planner of skeleton, which must not change.
func NewPlanner(skeleton *meta.Model) *Planner {
	return &Planner{skeleton, placement.NewPlanner(skeleton)}
}

// Skeleton returns the model that p plans.
func (p *Planner) Skeleton() *meta.Model { return p.skeleton }

// Plan is like the function [Plan] for the Planner's model.
func (p *Planner) Plan(o Options) (devicemap.Plan, Options, error) {
	if p.skeleton == nil {
		return devicemap.Plan{}, o, errors.New("dispatch: plan: got a nil skeleton")
	}
	d, err := p.planner.Plan(o.settings())
	if err != nil {
		return d.Plan, o.with(&d.Settings), planError(err)
	}
	return d.Plan, o.planned(&d), nil
}

// planError returns an error of planning as users know it.
func planError(err error) error {
	if e, ok := err.(*placement.ConversionError); ok {
		return (*QuantizeError)(e)
	}
	return err
}

// A QuantizeError reports that a plan places weights to be converted on a device that cannot hold
// converted weights.
type QuantizeError struct {
	Format meta.QuantFormat
	Path   string           // of the first parameter on another device
	Device devicemap.Device // its device; "" if there are several
	Bytes  int64            // size of all converted weights
}

// Error names the parameter and its device, and says how to avoid the error.
func (e *QuantizeError) Error() string { return (*placement.ConversionError)(e).Error() }

// Budgets returns the devices with the memory that Heft may take on each. This is the user's
// limit, or for a cpu without a limit the host's available memory.
func Budgets(limits []devicemap.DeviceMemory) ([]devicemap.Budget, error) {
	return placement.Budgets(limits)
}

// RequestMemory returns the bytes that a server's plan reserves for requests if the host's memory
// is limited to limit.
func RequestMemory(limit int64) int64 { return placement.RequestBytes(limit) }

// A Fit lists changes of [Options] after which no weight needs the disk tier. Each change alone
// suffices. A field is zero if no value of it suffices.
type Fit struct {
	Context      int              `json:"max_model_len,omitempty"` // the longest context
	MaxSequences int              `json:"max_batch,omitempty"`     // the most sequences of a batch
	Quantize     meta.QuantFormat `json:"-"`                       // the larger of the formats that suffice
	LimitBytes   int64            `json:"cpu_bytes"`               // the smallest limit for the cpu, in whole MiB
}

// MarshalJSON adds the name of Quantize.
func (f *Fit) MarshalJSON() ([]byte, error) {
	type fields Fit
	name := ""
	if f.Quantize != meta.QuantNone {
		name = f.Quantize.String()
	}
	return json.Marshal(struct {
		*fields
		Quantize string `json:"quantize,omitempty"`
	}{(*fields)(f), name})
}

// FitsWith returns the changes that would keep all weights of the model in memory. o are the
// options that were given to [Planner.Plan], and plan is its result. FitsWith returns false if
// the plan has no weight on the disk, or if the user placed weights there.
func (p *Planner) FitsWith(o Options, plan devicemap.Plan) (*Fit, bool) {
	f, ok := p.planner.FitsWith(o.settings(), plan)
	return (*Fit)(f), ok
}

// MemoryEstimate is the host memory for serving a model, in bytes.
type MemoryEstimate struct {
	KVPerToken  int64 // cached keys and values of a token in all layers
	KVPer1K     int64 // those of a sequence of 1000 tokens; layers with an attention window count for their window only
	KVTokens    int   // tokens that All and Least include: o.KVTokens, else the context, at most 4096
	Activations int64
	// All is the memory of the process with every weight resident. Least is the memory of a
	// process that streams as much as it can from the disk. Both include Runtime and, with
	// o.Serving, the memory for requests.
	All, Least int64
	Runtime    int64 // of the Go runtime, the program, the tokenizer and the model's description
}

// EstimateMemory estimates the host memory for serving skeleton with o. dtype is the type that
// weights are loaded as, or "" for the stored type; see [devicemap.Policy]. The estimate does not
// depend on the machine.
func EstimateMemory(skeleton *meta.Model, o Options, dtype string) (MemoryEstimate, error) {
	if skeleton == nil {
		return MemoryEstimate{}, errors.New("dispatch: estimate: got a nil skeleton")
	}
	e, err := placement.NewPlanner(skeleton).Estimate(o.settings(), dtype)
	return MemoryEstimate(e), planError(err)
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
	d := placement.Placement{Plan: *plan, Settings: o.settings()}
	return (*Coding)(d.Coding(skeleton))
}

// StreamsPrompts describes which prompts of a plan stream, or returns "" if none do.
func StreamsPrompts(plan *devicemap.Plan) string {
	if plan.StreamPrompts == 0 {
		return ""
	}
	return fmt.Sprintf("prompts of %d tokens or more compute blocks of the cpu and the disk on GPU %s, to which they stream", plan.StreamPrompts, cmp.Or(plan.StreamDevice, "0"))
}

// Streams reports whether passes of a plan read weights from the disk. It ignores memory that the
// KV cache and requests may lend to weights. A pass that streams takes about as long for many
// tokens as for one.
func Streams(plan devicemap.Plan) bool { return placement.Streams(&plan) }
