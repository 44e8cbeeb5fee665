package dispatch

import (
	"errors"
	"fmt"
	"math"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch/internal/placement"
	"github.com/heftai/heft/internal/nn"
	"github.com/heftai/heft/internal/residency"
	"github.com/heftai/heft/meta"
)

// A SelfDraft is a draft of a model by itself, for speculative decoding. It shares the weights
// that the model has in memory as stored. For weights that the model streams from the disk, it
// has converted copies in memory, in the format of Options.Quantize. It predicts the model's next
// tokens without reading the disk. If nothing streams, it has copies of all weights, which are
// faster to read.
type SelfDraft struct {
	Bytes int64 `json:"bytes"` // memory that it takes in addition to the model
	// DiskBytes is the number of bytes that the model reads from the disk per token with the
	// draft, and DiskBytesAlone without it.
	DiskBytes      int64 `json:"disk_bytes_per_token"`
	DiskBytesAlone int64 `json:"disk_bytes_per_token_alone"`
	OnDisk         bool  `json:"-"` // some weights are on the disk with the draft, so the model could use the draft's memory
	// NoRoom reports that the draft leaves the model less memory than its minimum.
	NoRoom bool `json:"no_room,omitempty"`
	// FullBytes is the value of Bytes if the whole model or no part of it is in memory. The draft
	// then has copies of all weights.
	FullBytes int64 `json:"-"`

	options Options
	devices devicemap.Map
	lent    map[*meta.Param]bool
}

// PlanSelfDraft plans a model and its self-draft within one memory limit. draft are the options
// of the draft. within returns the options of the model if the draft takes the given bytes of the
// limit. It is called several times: the less of the model is in memory, the more the draft
// takes, about a quarter of the weights that stream. PlanSelfDraft returns the plan that keeps
// most of the model in memory, its options, and the draft. It reads no weight.
//
// PlanSelfDraft returns an error if the model cannot be planned, or if the draft alone exceeds
// the limit. With StrictMemory it also returns an error if the draft leaves the model less than
// its minimum, together with a draft that has NoRoom set.
func PlanSelfDraft(skeleton *meta.Model, draft Options, within func(bytes int64) Options) (devicemap.Plan, Options, *SelfDraft, error) {
	draft.DeviceMap = devicemap.Policy{Kind: devicemap.Manual, Pins: devicemap.NewMap(devicemap.Entry{Device: devicemap.CPU})}
	planner := NewPlanner(skeleton)
	all, draft, err := planner.Plan(draft)
	if err != nil {
		return devicemap.Plan{}, draft, nil, err
	}
	host := all.Device(devicemap.CPU)
	full := host.Used() - host.RuntimeBytes - host.RequestBytes
	if host.LimitBytes > 0 && host.Used() > host.LimitBytes {
		return devicemap.Plan{}, draft, nil, fmt.Errorf("its weights and its KV cache take %s, more than the limit of %s", devicemap.FormatSize(host.Used()), devicemap.FormatSize(host.LimitBytes))
	}
	d := &SelfDraft{Bytes: full, FullBytes: full, options: draft, devices: all.Map}
	alone, _, aloneErr := planner.Plan(within(0))
	beside := func(bytes int64) Options {
		o := within(bytes)
		o.self.storedStreams = true
		return o
	}
	plan, o, err := planner.Plan(beside(full))
	for err == nil && placement.OnDisk(&plan) {
		var less int64
		d.lent, less = lendable(skeleton, &plan, &o, &draft)
		need := full - less
		if need >= d.Bytes-d.Bytes/64 {
			break
		}
		next, nextOptions, nextErr := planner.Plan(beside(need))
		if nextErr != nil {
			break // the plan at hand is good
		}
		if _, less := lendable(skeleton, &next, &nextOptions, &draft); full-less > need {
			break
		}
		d.Bytes, plan, o = need, next, nextOptions
	}
	if err != nil {
		d.NoRoom = aloneErr == nil
		return plan, o, d, fmt.Errorf("it takes %s of the limit, and for the rest: %w", devicemap.FormatSize(full), err)
	}
	d.OnDisk = placement.OnDisk(&plan)
	d.DiskBytes, d.DiskBytesAlone = plan.DiskBytesPerToken, plan.DiskBytesPerToken
	if aloneErr == nil {
		d.DiskBytesAlone = alone.DiskBytesPerToken
	}
	d.NoRoom = plan.BelowLeast
	return plan, o, d, nil
}

// Needs returns the minimum speedup that the draft's guesses must bring so that the draft pays.
// It is the bytes that the model reads from the disk per token with the draft, divided by those
// without it. It is at least 1, and infinite if nothing streams without the draft.
func (d *SelfDraft) Needs() float64 {
	switch {
	case d.DiskBytes <= d.DiskBytesAlone:
		return 1
	case d.DiskBytesAlone == 0:
		return math.Inf(1)
	}
	return float64(d.DiskBytes) / float64(d.DiskBytesAlone)
}

// AssumedRight is the share of a draft's guesses that plans assume to be right. With trained
// models it was 0.76 to 0.82.
const AssumedRight = 0.6

const mostGuesses = 15 // maximum per sequence that a pass verifies

// Gain returns the speedup with the draft if the share right of its guesses, from 0 to 1, is
// right. It counts the bytes that are read from the disk, but not the time that the draft
// computes. The draft does not pay if Gain is below 1.
func (d *SelfDraft) Gain(right float64) float64 {
	tokens, p := 0.0, 1.0
	for range mostGuesses + 1 {
		tokens, p = tokens+p, p*right
	}
	return tokens / d.Needs()
}

// lendable returns the weights that a draft shares with the model of the given plan, and the
// bytes that they would take in the draft's own memory. It shares no weights of a model that
// converts or codes its weights, and no part of a stack of experts.
func lendable(skeleton *meta.Model, plan *devicemap.Plan, o, draft *Options) (map[*meta.Param]bool, int64) {
	list, bytes := map[*meta.Param]bool{}, int64(0)
	if o.LoadedAs() != meta.QuantNone {
		return list, 0
	}
	program, err := nn.Compile(skeleton.Root)
	if err != nil {
		return list, 0
	}
	loaded := draft.placed.Settings.LoadedBytes(skeleton)
	paths := map[*meta.Param]string{}
	for path, p := range skeleton.Root.AllParams() {
		if p.SameAs == nil {
			paths[p] = path
		}
	}
	for _, u := range units(program) {
		experts := map[*meta.Module]bool{}
		for _, n := range u.Experts {
			for _, m := range n.Module.Walk() {
				experts[m] = true
			}
		}
		for _, n := range u.Modules {
			for _, m := range n.Module.Walk() {
				if experts[m] {
					continue
				}
				for _, p := range m.Params {
					p = p.Resolve()
					if device, ok := plan.Map.Device(paths[p]); !ok || device != devicemap.CPU || list[p] {
						continue
					}
					list[p] = true
					if n := loaded[p]; n > 0 {
						bytes += n
					} else {
						bytes += p.Bytes()
					}
				}
			}
		}
	}
	return list, bytes
}

// NewSelfDraft returns the draft d of m, which shares m's checkpoint. Both must be used from one
// goroutine. Close the draft first.
func (m *Model) NewSelfDraft(d *SelfDraft) (*Model, error) {
	if d == nil || d.devices.Len() == 0 {
		return nil, errors.New("dispatch: self-draft: got a draft without a map, want one of PlanSelfDraft")
	}
	o := d.options
	o.self.lender, o.self.lent = m, d.lent
	return New(m.skeleton, m.checkpoint, d.devices, o)
}

// selfDraftOptions are the options of a model with a self-draft, and of the draft.
type selfDraftOptions struct {
	lender        *Model               // of a draft: the model whose weights it shares
	lent          map[*meta.Param]bool // of a draft: the weights that it shares
	storedStreams bool                 // of the model: see settings
}

// weights returns the weights of the model that shares them with a draft; nil if o are not a
// draft's options.
func (o *selfDraftOptions) weights() *residency.Store {
	if o.lender == nil {
		return nil
	}
	return o.lender.weights
}
