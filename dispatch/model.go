package dispatch

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/backend/cpu"
	"github.com/heftai/heft/internal/hostmem"
	"github.com/heftai/heft/internal/kvcache"
	"github.com/heftai/heft/internal/nn"
	"github.com/heftai/heft/internal/residency"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/internal/topology"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
)

// A Model is a skeleton bound to a checkpoint and a device map. One goroutine uses it;
// Status, Measured and Warm may be called from any.
type Model struct {
	skeleton   *meta.Model
	checkpoint *loader.Checkpoint
	devices    devicemap.Map
	options    Options
	unexpected []string
	owned      bool // the checkpoint is closed with the model

	ledger   *hostmem.Ledger
	backend  backend.Backend
	variant  string // of the kernels
	program  *nn.Program
	weights  *residency.Store
	cache    *kvcache.Cache // nil for a tree without attention
	capacity int            // tokens that a sequence can have in the cache
	run      *nn.Context
	adapters []*adapter
	hooks    []Hook
	measured recorder

	pass pass
}

// pass is what one forward pass is put together in; its slices are kept.
type pass struct {
	input    nn.Input
	tokens   []int32
	groups   []nn.Group
	lengths  []int32
	prompts  []bool
	adapters []*nn.Adapter // of each token, where the model has any
	adapted  bool          // some token has one
	rows     []int32       // whose logits are wanted
	logits   Logits
	hook     Pass
}

// New binds skeleton to checkpoint as devices says, and takes the memory for keys and
// values, activations and staging. No weight is read. The checkpoint must stay open for as
// long as the model; the caller closes both.
//
// The skeleton may be a user's own tree: of kind Sequential, say, with parameters that
// name their Sources. It runs with [Model.Apply].
func New(skeleton *meta.Model, checkpoint *loader.Checkpoint, devices devicemap.Map, o Options) (*Model, error) {
	program, err := nn.Compile(skeleton.Root)
	if err != nil {
		return nil, err
	}
	binding, err := loader.Bind(checkpoint, skeleton)
	if err != nil {
		return nil, err
	}
	o = o.withDefaults(skeleton)
	m := &Model{skeleton: skeleton, checkpoint: checkpoint, devices: devices, options: o, unexpected: binding.Unexpected(),
		ledger: o.ledger(), program: program}
	if err := m.take(binding); err != nil {
		m.Close()
		return nil, err
	}
	return m, nil
}

// take takes memory and threads.
func (m *Model) take(binding *loader.Binding) error {
	places, homes := homes(topology.Here(), m.options.Threads)
	b, err := cpu.New(cpu.Options{Threads: m.options.Threads, Variant: m.options.Variant, Ledger: m.ledger, Places: places})
	if err != nil {
		return err
	}
	m.backend, m.variant = b, b.Variant()
	m.weights, err = residency.New(m.skeleton.Root, units(m.program), binding, m.devices,
		residency.Options{Ledger: m.ledger, Staging: m.options.StagingBytes,
			Quantize: m.options.Quantize, Threads: m.options.Threads, Variant: m.options.Variant, Homes: homes,
			SidecarDir: m.options.CacheDir})
	if err != nil {
		return err
	}
	if layers := m.program.KV(); len(layers) > 0 {
		config := m.options.cache(layers)
		if m.cache, err = kvcache.New(b.Memory(hostmem.KV), config); err != nil {
			return err
		}
		m.pass.groups = make([]nn.Group, m.cache.Groups())
		m.capacity = config.SequenceTokens(config.Pages, m.options.MaxBatchTokens, m.options.Context)
	}
	m.run, err = m.program.NewContext(m.backend, m.weights, m.options.limits())
	if err != nil {
		return err
	}
	m.pass.logits.vocab = m.program.Vocab()
	return m.takeAdapters()
}

// homes are the processors of the threads and the memory nodes of these, where there are
// several nodes; else none, as then threads and weights are well wherever they are.
func homes(m topology.Machine, threads int) ([]topology.CPU, []int) {
	if len(m.Nodes()) < 2 {
		return nil, nil
	}
	places := m.Places(threads)
	nodes := make([]int, len(places))
	for i, p := range places {
		nodes[i] = p.Node
	}
	return places, nodes
}

// units are the program's units in the terms of residency.
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
		out[i] = residency.Unit{Path: u.Path, Modules: nodes(u.Modules), Experts: nodes(u.Experts)}
	}
	return out
}

// Close gives memory, threads and rings back. The checkpoint stays open, unless the model
// has opened it.
func (m *Model) Close() {
	for _, a := range m.adapters {
		a.bound.Close()
	}
	if m.run != nil {
		m.run.Close()
	}
	if m.cache != nil {
		m.cache.Close()
	}
	if m.weights != nil {
		m.weights.Close()
	}
	if m.backend != nil {
		_ = m.backend.Close() // nothing is under way
	}
	if m.owned {
		_ = m.checkpoint.Close() // opened for reading
	}
	m.run, m.cache, m.weights, m.backend, m.adapters, m.owned = nil, nil, nil, nil, nil, false
}

// Forward computes one batch. Each row's tokens are appended to its sequence. It returns
// [ErrKVFull] where pages are missing and a *WeightError where weights cannot be read. After
// an error, or once ctx is done, the sequences of the batch hold what they held before; one
// that had to be computed anew may be empty.
func (m *Model) Forward(ctx context.Context, b *Batch) (*Logits, error) {
	if m.cache == nil {
		return nil, errors.New("dispatch: the tree has no attention; use Apply")
	}
	m.measured.begin()
	for i := range b.Rows {
		if err := m.restart(ctx, &b.Rows[i]); err != nil {
			return nil, err
		}
	}
	out, err := m.forward(ctx, b)
	if err == nil {
		m.measured.end(b, len(m.pass.rows) > 0, m.weights.Stats().ReadBytes)
	}
	return out, err
}

func (m *Model) forward(ctx context.Context, b *Batch) (*Logits, error) {
	if err := m.prepare(b); err != nil {
		m.undo(b)
		return nil, err
	}
	err := m.runUnits(ctx, &m.pass.input)
	if err == nil {
		err = m.verify()
	}
	if err != nil {
		m.undo(b)
		return nil, err
	}
	for i := range b.Rows {
		s := b.Rows[i].Sequence
		s.kv.Commit()
		s.tokens = append(s.tokens, b.Rows[i].Tokens...)
		s.length = max(s.length, b.Rows[i].PromptLen, len(s.tokens))
	}
	m.pass.logits.values = m.run.Logits().F32()
	m.pass.logits.hidden.take(m.run)
	return &m.pass.logits, nil
}

// verify notices a shard that was cut within its last page, which reads as zeros and
// faults nowhere.
func (m *Model) verify() error {
	if err := m.checkpoint.Whole(); err != nil {
		return m.weightError("", err)
	}
	return nil
}

func (m *Model) undo(b *Batch) {
	for i := range b.Rows {
		if s := b.Rows[i].Sequence; s != nil && s.kv != nil {
			s.kv.Truncate(s.kv.Committed())
		}
	}
}

// prepare lays the batch out and appends its tokens to their sequences.
func (m *Model) prepare(b *Batch) error {
	p := &m.pass
	p.tokens, p.lengths, p.prompts, p.rows = p.tokens[:0], p.lengths[:0], p.prompts[:0], p.rows[:0]
	p.adapters, p.adapted = p.adapters[:0], false
	for i := range p.groups {
		p.groups[i] = nn.Group{Spans: p.groups[i].Spans[:0], Slots: p.groups[i].Slots[:0]}
	}
	p.logits.first = append(p.logits.first[:0], 0)
	p.logits.hidden.reset()
	if n := b.Tokens(); n == 0 || n > m.options.MaxBatchTokens || len(b.Rows) > m.options.MaxSequences {
		return fmt.Errorf("dispatch: a batch of %d tokens in %d rows; at most %d in %d fit", n, len(b.Rows),
			m.options.MaxBatchTokens, m.options.MaxSequences)
	}
	for i := range b.Rows {
		if err := m.appendRow(&b.Rows[i]); err != nil {
			return fmt.Errorf("dispatch: row %d: %w", i, err)
		}
	}
	// Spans hold pages, which a later row's reservation does not move.
	p.input = nn.Input{Tokens: p.tokens, Groups: p.groups, KV: m.cache.Layers(), Lengths: p.lengths,
		Logits: p.rows, Normed: p.logits.hidden.rows, Sums: p.logits.hidden.sums}
	if m.options.Precision == PrecisionAuto {
		p.input.Prompts = p.prompts
	}
	if p.adapted {
		p.input.Adapters = p.adapters
	}
	return nil
}

func (m *Model) appendRow(r *Row) error {
	p, s := &m.pass, r.Sequence
	first, start := len(p.tokens), s.Len()
	total := start + len(r.Tokens)
	if total > m.options.Context {
		return fmt.Errorf("%d tokens; the context holds %d", total, m.options.Context)
	}
	for _, id := range r.Tokens {
		if id < 0 || int(id) >= m.program.Vocab() {
			return fmt.Errorf("token id %d is outside the vocabulary of %d", id, m.program.Vocab())
		}
	}
	prompt := r.PromptLen
	if prompt == 0 {
		prompt = total
	}
	if err := s.reserve(len(r.Tokens), prompt); err != nil {
		return err
	}
	if m.program.RopeClass(max(prompt, total)) != s.class {
		s.kv.Seal()
	}
	s.kv.Append(r.Tokens...)
	p.tokens = append(p.tokens, r.Tokens...)
	if len(m.adapters) > 0 {
		p.adapt(s, len(r.Tokens))
	}
	for i := range r.Tokens {
		length := max(prompt, start+i+1)
		if length < total && m.program.Restarts(length, total) {
			length = total
		}
		p.lengths = append(p.lengths, int32(length))
		p.prompts = append(p.prompts, start+i < prompt)
	}
	for i := range p.groups {
		g := &p.groups[i]
		g.Spans = append(g.Spans, backend.Span{First: first, Rows: len(r.Tokens), Start: start, Pages: s.kv.Pages(i)})
		g.Slots = slices.Grow(g.Slots, len(r.Tokens))[:first+len(r.Tokens)]
		s.kv.Slots(i, g.Slots[first:], start)
	}
	switch r.Logits {
	case LogitsLast:
		p.rows = append(p.rows, int32(len(p.tokens)-1))
	case LogitsAll:
		for i := range r.Tokens {
			p.rows = append(p.rows, int32(first+i))
		}
	}
	if len(p.rows) > m.options.limits().Outputs {
		return fmt.Errorf("logits of more than %d tokens in one pass", m.options.limits().Outputs)
	}
	p.logits.first = append(p.logits.first, len(p.rows))
	p.logits.hidden.add(r, first)
	return nil
}

// runUnits brings and runs one unit after another.
func (m *Model) runUnits(ctx context.Context, in *nn.Input) error {
	if err := m.run.Begin(in); err != nil {
		return err
	}
	for i, u := range m.program.Units {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := m.weights.Acquire(i); err != nil {
			return m.weightError(u.Path, err)
		}
		m.before(u)
		err := u.Run(m.run)
		m.after(u)
		m.weights.Release()
		if err != nil {
			return m.weightError(u.Path, err)
		}
	}
	return nil
}

// Apply runs a tree without tokens, a user's own say, on rows of x, [len(x)/width, width],
// and returns the rows that come out, valid until the next call.
func (m *Model) Apply(ctx context.Context, x []float32, width int) ([]float32, error) {
	if width < 1 || len(x)%width != 0 {
		return nil, fmt.Errorf("dispatch: %d values are no rows of %d", len(x), width)
	}
	in := nn.Input{Hidden: tensor.Floats(x, len(x)/width, width)}
	if err := m.runUnits(ctx, &in); err != nil {
		return nil, err
	}
	return m.run.Hidden().F32()[:m.run.Hidden().Elements()], nil
}

// A WeightError says which part of a model could not be brought or read. The model lives
// on, and what does not need that part still runs.
type WeightError struct {
	Path string // of the module; "" where the fault was found after a pass
	File string // the shard at fault, where that is known
	Err  error
}

func (e *WeightError) Error() string {
	if e.Path == "" {
		return fmt.Sprintf("dispatch: weights cannot be read: %v", e.Err)
	}
	if e.File != "" {
		return fmt.Sprintf("dispatch: %s: the weights in %s cannot be read: %v", e.Path, e.File, e.Err)
	}
	return fmt.Sprintf("dispatch: %s: %v", e.Path, e.Err)
}

func (e *WeightError) Unwrap() error { return e.Err }

// weightError asks the checkpoint what has happened to its files where memory could not be
// read.
func (m *Model) weightError(path string, err error) error {
	out := &WeightError{Path: path, Err: err}
	var broken *loader.Error
	if verdict := m.checkpoint.Verify(); errors.As(verdict, &broken) {
		out.File, out.Err = broken.File, verdict
	} else if errors.As(err, &broken) {
		out.File = broken.File
	}
	return out
}

// Skeleton is the model's shape.
func (m *Model) Skeleton() *meta.Model { return m.skeleton }

// DeviceMap is where the weights live.
func (m *Model) DeviceMap() devicemap.Map { return m.devices }

// Unexpected are the tensors of the checkpoint that the skeleton does not use, sorted.
func (m *Model) Unexpected() []string { return slices.Clone(m.unexpected) }

// Vocab is the width of the logits.
func (m *Model) Vocab() int { return m.program.Vocab() }

// Context is the number of tokens that a sequence may hold.
func (m *Model) Context() int { return m.options.Context }

// Limits are the most tokens and sequences of one batch.
func (m *Model) Limits() (tokens, sequences int) {
	return m.options.MaxBatchTokens, m.options.MaxSequences
}

// Machine is the number of threads that compute and the instruction set of the kernels.
func (m *Model) Machine() (threads int, variant string) { return m.options.Threads, m.variant }

// KV counts the pages of keys and values.
func (m *Model) KV() KVUsage {
	if m.cache == nil {
		return KVUsage{}
	}
	st, c := m.cache.Stats(), m.cache.Config()
	return KVUsage{PageTokens: c.PageTokens, Pages: st.Pages, Used: st.Used, Cached: st.Cached,
		PrefixQueries: st.Queries, PrefixHits: st.Hits, BytesPerToken: c.BytesPerToken(),
		Capacity: m.capacity}
}
