package main

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"

	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/internal/cmdline"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
)

// draftFlags choose the source of draft tokens.
type draftFlags struct {
	Draft       string `help:"Draft tokens with this model, a 4-bit copy (self), or the MTP module (mtp)." placeholder:"MODEL|self|mtp"`
	DraftTokens string `help:"Verify up to N drafted tokens per pass; 0 disables drafts (default ${default}: as measured)." default:"auto" placeholder:"auto|N"`
}

// draftTokens converts the value of --draft-tokens for the engine, where 0 means to adapt to
// measurements and a negative number means none.
func (f *draftFlags) draftTokens() (int, error) {
	if f.DraftTokens == "" || f.DraftTokens == "auto" {
		return 0, nil
	}
	n, err := strconv.Atoi(f.DraftTokens)
	if err != nil || n < 0 || n > generate.MaxDraftTokens {
		return 0, cmdline.Misusef("--draft-tokens: got %q, want auto or a number between 0 and %d", f.DraftTokens, generate.MaxDraftTokens)
	}
	if n == 0 {
		n = -1
	}
	return n, nil
}

// check rejects invalid values.
func (f *draftFlags) check() error {
	n, err := f.draftTokens()
	if err == nil && n < 0 && f.Draft != "" {
		return cmdline.Misusef("--draft %s with --draft-tokens 0: leave one of them out", f.Draft)
	}
	return err
}

// A drafter is a model that drafts tokens for another one, or several multi-token prediction
// modules of a checkpoint in a chain. All of their weights are in memory.
type drafter struct {
	models     []*dispatch.Model
	checkpoint *loader.Checkpoint // nil for a self-draft, which uses the model's
	words      generate.Text
	bytes      int64 // of its plan
}

func (d *drafter) close() {
	if d == nil {
		return
	}
	for _, m := range d.models {
		m.Close()
	}
	if d.checkpoint != nil {
		_ = d.checkpoint.Close() // opened for reading only
	}
}

// draftKVTokens is the capacity of a draft model's KV cache in tokens, for all sequences.
// moduleKVTokens is that of a multi-token prediction module, which has one layer and reads prompts.
const draftKVTokens, moduleKVTokens = 8192, 32768

// openDrafter opens and plans the model of --draft for the model m. It returns nil without the
// flag, and for --draft self.
func (c *runCmd) openDrafter(ctx context.Context, m servedModel, o dispatch.Options) (*drafter, error) {
	if c.Draft == "" || c.Draft == "self" {
		return nil, nil
	}
	from := m.source
	if c.Draft != "mtp" {
		var err error
		if from, err = newSource(c.Draft); err != nil {
			return nil, cmdline.Misusef("--draft: %w", err)
		}
	}
	skeleton, checkpoint, err := from.open()
	if err != nil {
		return nil, cmdline.Misusef("--draft: %w", err)
	}
	d := &drafter{checkpoint: checkpoint}
	skeletons := []*meta.Model{skeleton}
	if c.Draft == "mtp" {
		skeletons, err = meta.NewNexts(skeleton.Config, checkpoint)
	}
	if err == nil {
		d.words, err = generate.ReadText(from.where(), from.files)
	}
	options := draftOptions(o)
	options.HiddenStates = len(skeletons) > 1
	for _, skeleton := range skeletons {
		if err == nil {
			err = d.place(skeleton, options)
		}
	}
	if err != nil {
		d.close()
		return nil, cmdline.Misusef("--draft %s: %w", c.Draft, err)
	}
	for _, m := range d.models {
		m.Warm(ctx)
	}
	d.bytes += generate.DraftNextBytes(d.models)
	slog.Info("tokens are guessed by a draft model", "model", c.Draft, "modules", len(d.models), "memory", devicemap.FormatSize(d.bytes))
	return d, nil
}

// planSelf plans the model of d and its self-draft within one limit of memory. It plans the model
// alone if --draft-tokens is auto and the draft is not expected to pay off.
func (f *fleet) planSelf(d *draft) (devicemap.Plan, dispatch.Options, error) {
	plan, options, self, err := planSelf(d.skeleton, d.options, func(bytes int64) dispatch.Options {
		return f.within(d, f.beside(bytes), d.options.StrictMemory)
	})
	d.offered = self
	if n, _ := f.command.draftTokens(); n == 0 && declined(self) {
		slog.Warn("--draft self is not used: " + selfLine(self))
		return d.planner.Plan(d.options)
	}
	if err != nil {
		return plan, options, err
	}
	d.self, d.dropSelf = self, f.dropSelf
	f.setDrafts(self.Bytes)
	return plan, options, nil
}

// planSelf plans a model with the options o and its self-draft.
func planSelf(skeleton *meta.Model, o dispatch.Options, within func(bytes int64) dispatch.Options) (devicemap.Plan, dispatch.Options, *dispatch.SelfDraft, error) {
	o = draftOptions(o)
	o.Quantize = meta.QuantQ4
	if spec, ok := skeleton.Root.Spec.(*meta.CausalLMSpec); ok && (o.Context <= 0 || o.Context > spec.Context) {
		o.Context = spec.Context
	}
	o.KVTokens = min(o.Context, draftKVTokens)
	plan, options, self, err := dispatch.PlanSelfDraft(skeleton, o, within)
	if err != nil {
		err = cmdline.Misusef("--draft self: %w", err)
	}
	return plan, options, self, err
}

// declined reports whether a self-draft is omitted if --draft-tokens is auto: it has no room, or is
// not expected to pay off.
func declined(d *dispatch.SelfDraft) bool {
	return d != nil && (d.NoRoom || d.Gain(dispatch.AssumedRight) < 1)
}

// accepted returns d, or nil if it is declined.
func accepted(d *dispatch.SelfDraft) *dispatch.SelfDraft {
	if declined(d) {
		return nil
	}
	return d
}

// selfLine describes the memory of a self-draft and its expected gain.
func selfLine(d *dispatch.SelfDraft) string {
	size := devicemap.FormatSize
	gain := d.Gain(dispatch.AssumedRight)
	if d.NoRoom {
		return fmt.Sprintf("draft self: its copies and KV cache take %s of the limit, which leaves the model less than its minimum, so auto declines it", size(d.Bytes))
	}
	line := fmt.Sprintf("draft self: its copies and KV cache take %s of the limit; %s stream for a token, %s without it; ", size(d.Bytes), size(d.DiskBytes), size(d.DiskBytesAlone))
	if gain < 1 {
		return line + fmt.Sprintf("with %.0f %% of guesses right that is slower, so auto declines it", 100*dispatch.AssumedRight)
	}
	if d.DiskBytes == 0 {
		return line + "nothing streams, so memory bounds what it gains"
	}
	return line + fmt.Sprintf("with %.0f %% of guesses right a byte from the disk gives %.1f times the tokens", 100*dispatch.AssumedRight, gain)
}

// dropSelf closes l's self-draft, which must not be in use, and frees its memory for l's weights.
func (f *fleet) dropSelf(l *loaded) {
	f.setDrafts(0)
	for _, m := range l.drafter.models {
		m.Close()
	}
	host := l.model.Plan().Device(devicemap.CPU)
	if host.LimitBytes > 0 {
		l.model.SetMemoryLimit(max(f.limitNow(), host.Used()))
	}
}

// openSelf opens the self-draft of a model.
func (l *loaded) openSelf(ctx context.Context, self *dispatch.SelfDraft, words generate.Text) error {
	m, err := l.model.NewSelfDraft(self)
	if err != nil {
		return cmdline.Misusef("--draft self: %w", err)
	}
	l.drafter = &drafter{models: []*dispatch.Model{m}, words: words, bytes: self.Bytes}
	m.Warm(ctx)
	slog.Info("tokens are guessed by the model itself, with weights in 4 bits instead of those that stream: "+selfLine(self), "memory", devicemap.FormatSize(self.Bytes))
	return nil
}

// noteModules logs that a checkpoint has multi-token prediction modules, which are not loaded.
func noteModules(d *draft) {
	if all, err := meta.NewNexts(d.skeleton.Config, d.checkpoint); err == nil {
		slog.Info("the checkpoint has modules for multi-token prediction, which are not read: --draft mtp guesses with them", "count", len(all))
	}
}

// draftOptions returns the options of a draft model for a model with the options o.
func draftOptions(o dispatch.Options) dispatch.Options {
	return dispatch.Options{MaxMemory: o.MaxMemory, StrictMemory: true, Threads: o.Threads, Variant: o.Variant, KVDType: o.KVDType,
		Context: o.Context, MaxSequences: o.MaxSequences, Lazy: o.Lazy, Ledger: o.Ledger,
		DeviceMap: devicemap.Policy{Kind: devicemap.Manual, Pins: devicemap.NewMap(devicemap.Entry{Device: devicemap.CPU})}}
}

// place plans a model of the drafter and reserves its memory.
func (d *drafter) place(skeleton *meta.Model, o dispatch.Options) error {
	if spec, ok := skeleton.Root.Spec.(*meta.CausalLMSpec); ok && (o.Context <= 0 || o.Context > spec.Context) {
		o.Context = spec.Context
	}
	o.KVTokens = min(o.Context, draftKVTokens)
	if spec, ok := skeleton.Root.Spec.(*meta.CausalLMSpec); ok && spec.Join != nil {
		o.KVTokens = min(o.Context*max(o.MaxSequences, 1), moduleKVTokens)
	}
	plan, o, err := dispatch.Plan(skeleton, o)
	if err != nil {
		return err
	}
	host := plan.Device(devicemap.CPU)
	used := d.bytes + host.Used()
	if host.LimitBytes > 0 && used > host.LimitBytes {
		return fmt.Errorf("its weights and its KV cache take %s, more than the limit of %s", devicemap.FormatSize(used), devicemap.FormatSize(host.LimitBytes))
	}
	m, err := dispatch.New(skeleton, d.checkpoint, plan.Map, o)
	if err != nil {
		return err
	}
	d.models = append(d.models, m)
	d.bytes = used - host.RuntimeBytes - host.RequestBytes + int64(o.MaxSequences)*generate.DraftStateBytes(m)
	return nil
}
