package dispatch

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch/internal/placement"
	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/backend/cpu"
	"github.com/heftai/heft/internal/deviceweights"
	"github.com/heftai/heft/internal/hostmem"
	"github.com/heftai/heft/internal/inuse"
	"github.com/heftai/heft/internal/kvcache"
	"github.com/heftai/heft/internal/nn"
	"github.com/heftai/heft/internal/residency"
	"github.com/heftai/heft/internal/residency/policy"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
)

// A Model is a skeleton bound to a checkpoint and a device map. One goroutine uses it, except for
// the methods that are safe for concurrent use.
type Model struct {
	skeleton   *meta.Model
	checkpoint *loader.Checkpoint
	devices    devicemap.Map
	plan       devicemap.Plan
	options    Options            // as the caller gave them
	settings   placement.Settings // those of the plan; sizes and formats are read here
	binding    *loader.Binding
	unexpected []string
	owned      bool        // the checkpoint is closed with the model
	closed     atomic.Bool // Close was called

	ledger      *hostmem.Ledger
	backend     backend.Backend
	variant     string // of the kernels
	program     *nn.Program
	weights     *residency.Store
	recording   *policy.Recorder // of RecordRouting
	keeper      *routingKeeper   // of KeepRouting
	hits        hitCounter
	cache       *kvcache.Cache // nil for a tree without attention
	capacity    int            // tokens that a sequence can have in the cache
	run         *nn.Context
	stations    stations   // the GPUs
	meters      []*meter   // of the host and of each station, made when the model is opened
	activations int        // tokens of the largest pass of run
	adapters    []*adapter // of Options.Adapters
	loras       loras
	hooks       []*HookHandle
	measured    recorder
	expected    atomic.Pointer[ModelSpeed] // see Expect
	tuned       <-chan struct{}            // closed at the end of TuneReads; nil before it begins
	stopTuning  context.CancelFunc
	warmed      atomic.Bool           // Warm was called
	promoted    atomic.Bool           // Promote was called
	changed     atomic.Pointer[error] // why passes fail since a file was changed, if one was

	touch struct { // of touchFirst
		stop    context.CancelFunc
		running sync.WaitGroup
	}
	limit   limited
	lending lending
	pass    pass
	batches uint64 // number of calls of Forward
}

// New binds skeleton to checkpoint with the given device map (Accelerate's dispatch_model). It
// allocates the KV cache, activations and staging and reads no weight. The checkpoint must stay
// open as long as the model; the caller closes both.
//
// The skeleton may be a tree of your own, such as one of kind Sequential whose parameters name their
// Sources. Run it with [Model.Apply].
func New(skeleton *meta.Model, checkpoint *loader.Checkpoint, devices devicemap.Map, o Options) (*Model, error) {
	if skeleton == nil || checkpoint == nil {
		return nil, errors.New("dispatch: new: got a nil skeleton or checkpoint")
	}
	if err := o.check(); err != nil {
		return nil, err
	}
	program, err := nn.Compile(skeleton.Root)
	if err != nil {
		return nil, err
	}
	binding, err := loader.Bind(checkpoint, skeleton)
	if err != nil {
		return nil, err
	}
	ledger := o.ledger()
	m := &Model{skeleton: skeleton, checkpoint: checkpoint, devices: devices, binding: binding, unexpected: binding.Unexpected(),
		ledger: ledger, options: o, program: program}
	if err := m.placeBy(devices); err != nil {
		return nil, err
	}
	if err := m.take(binding); err != nil {
		m.Close()
		return nil, err
	}
	return m, nil
}

// Checkpoint returns the checkpoint that the weights are read from.
func (m *Model) Checkpoint() *loader.Checkpoint { return m.checkpoint }

// take allocates memory and starts threads. After an error Close releases them.
func (m *Model) take(binding *loader.Binding) error {
	here := m.settings.Machine()
	layout := here.Layout(m.settings.Threads)
	b, err := cpu.New(cpu.Options{Threads: m.settings.Threads, Variant: m.settings.Variant, Ledger: m.ledger, Arena: &m.options.Ledger.arena, Layout: layout, Waiting: m.waiting()})
	if err != nil {
		return err
	}
	m.backend, m.variant = b, b.Variant()
	converter, err := m.newConverter()
	if err != nil {
		return err
	}
	if err := m.takeStations(); err != nil {
		return err
	}
	devices, skip := m.hostMap()
	o := m.residencyOptions()
	o.Skip, o.Converter, o.Rouse = skip, converter, b.Rouse
	if layout != nil {
		o.Homes = layout.Homes
	}
	if err := m.openWeights(binding, devices, o); err != nil {
		return err
	}
	if placement.HasKV(m.program) {
		config := m.settings.KVConfig(m.program)
		if config.Backing, err = m.newBacking(b.Memory(hostmem.Activations)); err != nil {
			return err
		}
		if err := m.takeKV(b.Memory(hostmem.KV), config); err != nil {
			return err
		}
	}
	if err := m.newRun(m.keptTokens()); err != nil {
		return err
	}
	if err := m.startStations(); err != nil {
		return err
	}
	m.pass.logits.vocab = m.program.Vocab()
	if err := m.limitReconverted(); err != nil {
		return err
	}
	fewest, experts := m.weights.ExpertBytes()
	m.limit.spare.Store(experts - fewest)
	m.startLending()
	return m.takeAdapters()
}

// newConverter returns the converter of weights that are converted when they are loaded, or nil
// to use weights as stored. Stations use the same conversion.
func (m *Model) newConverter() (backend.Converter, error) {
	switch {
	case m.settings.Coded:
		return cpu.NewCoder(m.settings.Threads), nil
	case m.settings.Quantize == meta.QuantNone:
		return nil, nil
	}
	c, err := cpu.NewConverter(m.settings.Quantize, m.settings.Threads, m.settings.Variant)
	if err != nil {
		return nil, err
	}
	m.stations.convert = deviceweights.Conversion{Deinterleaver: c.InRows(), Params: m.settings.LoadedBytes(m.skeleton)}
	return c, nil
}

// waiting returns the backend's Options.Waiting, or nil if passes do not wait for experts.
func (m *Model) waiting() func() (cpu.Waiting, bool) {
	if m.plan.ExpertCacheBytes == 0 {
		return nil
	}
	trial := new(waitTrial)
	m.measured.wait = trial
	return func() (cpu.Waiting, bool) { return trial.mode(), m.options.Ledger.mover.Reading() }
}

// residencyOptions returns the options of the weight store that follow from the model's options
// and plan. The stations must have loaded their weights.
func (m *Model) residencyOptions() residency.Options {
	o, ledger := &m.settings, m.options.Ledger
	return residency.Options{
		Arena:      &ledger.arena,
		Mover:      &ledger.mover,
		Policy:     &ledger.kept,
		Staging:    o.StagingBytes,
		Lent:       m.lendable(),
		Keep:       m.plan.Policy != devicemap.Manual,
		Restream:   true,
		Bands:      o.BandsOf(m.program, o.StreamedAs(o.LoadedBytes(m.skeleton))),
		RowGroups:  m.program.RowGroups(),
		Converted:  o.ConvertedBytes(m.skeleton),
		Known:      o.CodedSizes,
		SidecarDir: o.CacheDir,
		NoLateFile: o.InMemory,
		Away:       m.away,
		Lender:     m.options.self.weights(),
		Borrows:    func(p *meta.Param) bool { return m.options.self.lent[p] },
	}
}

// units returns the program's units as package residency describes them.
func units(p *nn.Program) []residency.Unit {
	out := make([]residency.Unit, len(p.Units))
	nodes := func(list []nn.Node) []residency.Node {
		var out []residency.Node
		for _, n := range list {
			out = append(out, residency.Node{Path: n.Path, Module: n.Module})
		}
		return out
	}
	for i, u := range p.Units {
		out[i] = residency.Unit{Path: u.Path, Modules: nodes(u.Modules), Experts: nodes(u.Experts), Banded: u.Banded}
	}
	return out
}

// Close releases memory and threads. It closes the checkpoint only if the model opened it. If a
// generate.Model was made of m, Close ends it first; otherwise no other method may run meanwhile.
// After Close, passes return [ErrClosed]. A second call of Close does nothing.
func (m *Model) Close() {
	inuse.End(m)
	if m.closed.Swap(true) {
		return
	}
	m.stopTune()
	m.endFollowing()
	m.endKV()
	m.options.Ledger.lenders.remove(m)
	m.keeper.saveHits(m)
	m.keeper.close()
	m.closeLoras()
	for _, a := range m.adapters {
		a.close()
	}
	if m.run != nil {
		m.run.Close()
	}
	if m.cache != nil {
		m.resizeKV(m.cache.Config().Pages) // the ledger counts what Close frees
		m.ledger.Add(hostmem.KV, m.cache.Config().AddressedBytes())
		m.cache.Close()
	}
	if m.weights != nil {
		m.weights.Close()
	}
	m.closeStations()
	if m.backend != nil {
		_ = m.backend.Close() // nothing is under way
	}
	if m.owned {
		_ = m.checkpoint.Close() // opened for reading
	}
	m.run, m.cache, m.backend, m.adapters = nil, nil, nil, nil // m.weights has the counters of Status
}

// Skeleton returns the module tree.
func (m *Model) Skeleton() *meta.Model { return m.skeleton }

// DeviceMap returns where the weights live.
func (m *Model) DeviceMap() devicemap.Map { return m.devices }

// Unexpected returns the names of tensors in the checkpoint that the skeleton does not use, sorted.
func (m *Model) Unexpected() []string { return slices.Clone(m.unexpected) }

// Others counts the tensors of parts of the model that Heft does not use, such as a vision tower.
func (m *Model) Others() loader.Others { return m.binding.Others() }

// Vocab returns the width of the logits.
func (m *Model) Vocab() int { return m.program.Vocab() }

// Joins returns the width of the hidden states in [BatchRow].Before. It is 0 for a model whose
// only inputs are tokens.
func (m *Model) Joins() int { return m.program.Joins() }

// Context returns the maximum number of tokens in a sequence.
func (m *Model) Context() int { return m.settings.Context }

// BatchLimits holds the limits of one [Batch].
type BatchLimits struct {
	Tokens, Sequences int
	States            int // hidden states
	// Streaming reports that weights stream from the disk. A pass then takes about as long for
	// many tokens as for one.
	Streaming bool
}

// BatchLimits returns the limits of one batch, which follow from Options.MaxBatchTokens and
// Options.MaxSequences. If long passes borrow memory from the expert cache for their activations,
// Tokens falls with the memory limit. BatchLimits is safe for concurrent use.
func (m *Model) BatchLimits() BatchLimits {
	limits := m.settings.Limits()
	return BatchLimits{Tokens: m.batchTokens(), Sequences: m.settings.MaxSequences, States: max(limits.Outputs, limits.States), Streaming: placement.Streams(&m.plan)}
}

// Kernels describes the threads and the instruction set that a model computes with.
type Kernels struct {
	Threads int
	Variant string // the instruction set, as in Options.Variant
}

// Kernels returns the threads and the variant of the model.
func (m *Model) Kernels() Kernels { return Kernels{m.settings.Threads, m.variant} }

// KV returns the usage of the KV cache.
func (m *Model) KV() KVUsage {
	if m.cache == nil {
		return KVUsage{}
	}
	st, c := m.cache.Stats(), m.cache.Config()
	return KVUsage{PageTokens: c.PageTokens, Pages: st.Pages, Used: st.Used, Cached: st.Cached,
		PrefixQueries: st.Queries, PrefixHits: st.Hits, BytesPerToken: c.BytesPerToken(),
		Capacity: m.capacity}
}

// LoadedAs returns the format that the model's weights are converted to when they are loaded: the
// result of Quantized, QuantCoded if they are coded, or QuantNone.
func (m *Model) LoadedAs() meta.QuantFormat { return m.settings.LoadedAs() }

// Quantized returns Options.Quantize: the format that the model's weights are converted to, or QuantNone.
func (m *Model) Quantized() meta.QuantFormat { return m.settings.Quantize }
