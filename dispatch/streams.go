package dispatch

import (
	"context"
	"errors"
	"slices"

	"github.com/heftai/heft/dispatch/internal/placement"
	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/deviceweights"
	"github.com/heftai/heft/internal/kvcache"
	"github.com/heftai/heft/internal/nn"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// A GPU may compute long prompts although the host has the weights: blocks of the cpu and disk
// tiers stream to it. The device that computes a token depends only on its block, its role and
// the length of its prompt. Chunking and other rows of a batch therefore do not change a bit of
// an answer. The host computes the generated tokens of such blocks, so it holds the cached keys
// and values. Block by block, a pass copies the pages that its rows see to the GPU, and copies
// the pages that it writes back.

// stationWeights are the weights of a station: those that stay there, or the stream's while a
// unit that streams runs.
type stationWeights struct {
	*deviceweights.Weights
	stream    *deviceweights.Stream // nil if no unit streams
	streaming bool
	experts   bool // those that do not stay there stream
}

func (w *stationWeights) Parts(p *meta.Param, expert int) []backend.Part {
	if w.streaming || w.experts && expert >= 0 && !w.Has(p, expert) {
		return w.stream.Parts(p, expert)
	}
	return w.Weights.Parts(p, expert)
}

func (w *stationWeights) Err() error {
	if (w.streaming || w.experts) && w.stream.Err() != nil {
		return w.stream.Err()
	}
	return w.Weights.Err()
}

func (w *stationWeights) WantExperts(m *meta.Module, experts []int32) {
	if w.streaming || w.experts {
		w.stream.WantExperts(m, experts)
	}
}

func (w *stationWeights) HoldExperts(m *meta.Module, experts []int32) (int, error) {
	if w.streaming || w.experts && !w.Has(m.Params[0].Resolve(), int(experts[0])) {
		return w.stream.HoldExperts(m, experts)
	}
	return w.Weights.HoldExperts(m, experts)
}

func (w *stationWeights) Banded(p *meta.Param) bool { return w.streaming && w.stream.Banded(p) }

func (w *stationWeights) NextBand(p *meta.Param) []backend.Part { return w.stream.NextBand(p) }

// promptStreams are the units that stream to a station for long prompts.
type promptStreams struct {
	from    int        // minimum length of a prompt that streams, in tokens; 0 means none does
	to      []*station // of each unit; nil if it does not stream
	experts []*station // of each unit at a station whose host experts stream
	long    bool       // the tokens of the pass belong to long prompts
	parts   [2]Batch   // of a batch in which only some tokens do
	both    Logits     // the results of both parts
}

// planStreams sets up streams of host units to the GPU of the plan, or to the last GPU that has
// units.
func (m *Model) planStreams() error {
	st, from := &m.stations.streams, m.settings.StreamPrompts
	if from <= 0 || m.program.HostOnly() != "" {
		return nil
	}
	tier, convert := m.settings.GPUs(), m.settings.Conversion(m.stations.convert.Params)
	if d := m.plan.StreamDevice; d != "" {
		s, err := m.station(d, tier)
		if err != nil {
			return err
		}
		m.stations.list = append(slices.DeleteFunc(m.stations.list, func(other *station) bool { return other == s }), s)
		if m.stations.of == nil {
			m.stations.of = make([]*station, len(m.program.Units))
		}
	}
	if len(m.stations.list) == 0 {
		return nil
	}
	st.to, st.experts = make([]*station, len(m.program.Units)), make([]*station, len(m.program.Units))
	last := m.stations.list[len(m.stations.list)-1]
	for i, u := range m.program.Units {
		switch {
		case tier.Refuses(u, convert) != "":
		case m.hostHasExperts(u):
			st.experts[i], st.from = last, from
		case m.stations.of[i] == nil && len(u.Layers)+len(u.States) > 0 && m.dividedIn(u) == nil:
			st.to[i], st.from = last, from
		}
	}
	return nil
}

// startStreams allocates the GPU memory of streams: rings of weights, and the keys, values and
// states of a unit.
func (m *Model) startStreams() error {
	if m.stations.streams.from == 0 {
		return nil
	}
	for _, s := range m.stations.list {
		var units []placement.StreamedUnit
		var cached int64
		for i, u := range m.program.Units {
			if m.stations.streams.experts[i] == s {
				units = append(units, placement.StreamedUnit{Unit: u, OnlyExperts: true})
			}
			if m.stations.streams.to[i] != s {
				continue
			}
			units = append(units, placement.StreamedUnit{Unit: u})
			cached = max(cached, m.cachedBytes(u))
		}
		if units == nil {
			continue
		}
		var err error
		if s.weights.stream, err = deviceweights.NewStream(s.backend, m.weights, m.stations.convert, placement.StreamSize(units, m.stations.convert.Params)); err == nil {
			s.pages, err = s.backend.New(meta.Uint8, int(cached))
		}
		if err != nil {
			return m.noRoom(s, "blocks that stream for long prompts", "use --stream-prompts none", err)
		}
		s.layers, s.states = slices.Clone(m.cache.Layers()), slices.Clone(m.cache.States())
		for i, u := range m.program.Units {
			if m.stations.streams.to[i] == s {
				m.streamMemory(u, s)
			}
		}
	}
	return nil
}

// cachedBytes returns the memory that streamMemory assigns to the keys, values and states of a
// unit.
func (m *Model) cachedBytes(u *nn.Unit) (n int64) {
	for _, l := range u.Layers {
		kv := &m.cache.Layers()[l]
		if n += aligned(kv.K.Bytes()); valuesApart(kv) {
			n += aligned(kv.V.Bytes())
		}
	}
	for _, l := range u.States {
		n += aligned(m.cache.States()[l].Bytes())
	}
	return n
}

// streamMemory assigns memory at s to the keys, values and states of a unit that streams, one
// after another. All units use the same memory, because one unit runs at a time.
func (m *Model) streamMemory(u *nn.Unit, s *station) {
	at := int64(0)
	take := func(like tensor.Tensor) tensor.Tensor {
		begin, end := at, at+like.Bytes()
		at = aligned(end)
		return shaped(s.pages.Slice(int(begin), int(end)), like)
	}
	for _, l := range u.Layers {
		kv := &m.cache.Layers()[l]
		out := kv.KV
		out.K = take(kv.K)
		if out.V = out.K; valuesApart(kv) {
			out.V = take(kv.V)
		}
		s.layers[l].KV = out
	}
	for _, l := range u.States {
		s.states[l] = take(m.cache.States()[l])
	}
}

// aligned rounds bytes up to an alignment that devices read fast.
func aligned(bytes int64) int64 {
	const align = 256
	return (bytes + align - 1) / align * align
}

// valuesApart reports whether values have memory of their own.
func valuesApart(kv *kvcache.Layer) bool { return !tensor.Same(kv.K, kv.V) }

// shaped returns bytes as a tensor with the shape of t.
func shaped(bytes, t tensor.Tensor) tensor.Tensor {
	t.Data, t.Address = bytes.Data, bytes.Address
	return t
}

// stationOfUnit returns the station at which unit i runs in this pass, or nil for the host.
func (m *Model) stationOfUnit(i int) *station {
	if m.stations.streams.long && m.stations.streams.to[i] != nil {
		return m.stations.streams.to[i]
	}
	return m.stations.of[i]
}

// streamOf returns the stream of unit i in this pass, or nil if it does not stream.
func (m *Model) streamOf(i int) *deviceweights.Stream {
	if m.stations.streams.long && m.stations.streams.to[i] != nil {
		return m.stations.streams.to[i].weights.stream
	}
	if s := m.expertStream(i); s != nil {
		return s.weights.stream
	}
	return nil
}

// inputOf returns the input of the pass for s.
func (m *Model) inputOf(s *station, in *nn.Input) *nn.Input {
	streams := m.stations.streams.long && s.weights.stream != nil
	if !streams && in.Adapters == nil {
		return in
	}
	s.input = *in
	if streams {
		s.input.KV, s.input.States = s.layers, s.states
	}
	if in.Adapters != nil {
		s.adapted = s.adapted[:0]
		for _, a := range m.pass.owners {
			var copied *nn.Adapter // nil for none
			if a != nil {
				copied = a.copies[slices.Index(m.stations.list, s)]
			}
			s.adapted = append(s.adapted, copied)
		}
		s.input.Adapters = s.adapted
	}
	return &s.input
}

// runStreamed runs unit i at s. The host has its weights and pages.
func (m *Model) runStreamed(i int, u *nn.Unit, s *station) error {
	if err := errors.Join(m.movePages(u, s, true), m.moveStates(u, s, true)); err != nil {
		return s.failed(u.Path, err)
	}
	s.weights.streaming = true
	before := s.weights.stream.Copied()
	s.weights.stream.Begin()
	err := m.runUnit(i, u, s.run)
	s.weights.stream.End()
	s.weights.streaming = false
	s.meter.streamed.Add(s.weights.stream.Copied() - before)
	if err != nil {
		return err
	}
	if err := errors.Join(m.movePages(u, s, false), m.moveStates(u, s, false)); err != nil {
		return s.failed(u.Path, err)
	}
	return nil
}

// moveStates copies states of u's layers: if there is set, those that the pass reads to s;
// otherwise those that it has written from s.
func (m *Model) moveStates(u *nn.Unit, s *station, there bool) error {
	for _, l := range u.States {
		host, device := m.cache.States()[l], s.states[l]
		for _, span := range m.pass.input.StateSpans {
			slots := [2]int32{span.From, -1}
			if !there {
				if slots[0] = span.To; span.SaveAfter > 0 {
					slots[1] = span.Save
				}
			}
			for i := range slots {
				if slots[i] < 0 {
					continue
				}
				if err := s.copyPages(device, host, slots[i:i+1], there); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// movePages copies pages of u's layers: if there is set, those that the rows of the pass see to
// s; otherwise those that they have written from s.
func (m *Model) movePages(u *nn.Unit, s *station, there bool) error {
	for _, l := range u.Layers {
		host, device := &m.cache.Layers()[l], &s.layers[l]
		window := m.program.KV()[l].Window
		for _, span := range m.pass.input.Groups[host.Group].Spans {
			begin, end := span.Start/host.PageTokens, ceilDiv(span.Start+span.Rows, host.PageTokens)
			if there {
				if begin, end = 0, ceilDiv(span.Start, host.PageTokens); window > 0 {
					begin = max(0, span.Start-window) / host.PageTokens
				}
			}
			if begin >= end {
				continue
			}
			pages := span.Pages[begin:end]
			if err := s.copyPages(device.K, host.K, pages, there); err != nil {
				return err
			}
			if !valuesApart(host) {
				continue
			}
			if err := s.copyPages(device.V, host.V, pages, there); err != nil {
				return err
			}
		}
	}
	return nil
}

func ceilDiv(a, n int) int { return (a + n - 1) / n }

// copyPages copies pages to the device, or from it. It copies runs of adjacent pages at once.
func (s *station) copyPages(device, host tensor.Tensor, pages []int32, there bool) error {
	for len(pages) > 0 {
		n := 1
		for n < len(pages) && pages[n] == pages[0]+int32(n) {
			n++
		}
		begin, end := int(pages[0]), int(pages[0])+n
		to, from := host.Slice(begin, end), device.Slice(begin, end)
		if there {
			to, from = from, to
		}
		if err := s.backend.Copy(to, from); err != nil {
			return err
		}
		pages = pages[n:]
	}
	return nil
}

// pageClass returns the class of prompts of n tokens that share pages. Prompts that a GPU
// computes have a class of their own, because their bits may differ.
func (m *Model) pageClass(n, prompt int) uint64 {
	class := m.program.RopeClass(n)
	if from := m.stations.streams.from; from > 0 && prompt >= from && m.settings.Precision != PrecisionHigh {
		const streamed = 1 << 63
		class ^= streamed
	}
	return class
}

// splitBatch splits b into the tokens of long prompts and the others. A row may have some of
// both. The next call reuses both batches.
func (m *Model) splitBatch(b *Batch) (long, others *Batch) {
	st := &m.stations.streams
	long, others = &st.parts[0], &st.parts[1]
	long.Rows, others.Rows = long.Rows[:0], others.Rows[:0]
	for _, r := range b.Rows {
		start, n := r.Sequence.Len(), len(r.Tokens)
		if r.PromptLen == 0 {
			r.PromptLen = start + n
		}
		k := 0
		if r.PromptLen >= st.from {
			k = min(max(r.PromptLen-start, 0), n)
		}
		switch k {
		case 0:
			others.Rows = append(others.Rows, r)
		case n:
			long.Rows = append(long.Rows, r)
		default:
			first, rest := r, r
			first.Tokens, rest.Tokens = r.Tokens[:k], r.Tokens[k:]
			if width := m.program.Joins(); width > 0 {
				first.Before, rest.Before = r.Before[:k*width], r.Before[k*width:]
			}
			if first.Logits = LogitsNone; r.Logits == LogitsAll {
				first.Logits = LogitsAll
			}
			switch r.Hidden {
			case HiddenFirst:
				rest.Hidden = HiddenNone
			case HiddenLast:
				first.Hidden = HiddenNone
			}
			long.Rows, others.Rows = append(long.Rows, first), append(others.Rows, rest)
		}
	}
	return long, others
}

// forwardParts is forward for a model with units that stream. It computes the tokens of long
// prompts first, then the others.
func (m *Model) forwardParts(ctx context.Context, b *Batch) (*Logits, error) {
	st := &m.stations.streams
	long, others := m.splitBatch(b)
	defer func() { st.long = false }()
	if st.long = len(long.Rows) > 0; len(long.Rows) == 0 || len(others.Rows) == 0 {
		return m.forwardAlike(ctx, b)
	}
	starts := make([]int, len(long.Rows))
	for i := range long.Rows {
		starts[i] = long.Rows[i].Sequence.Len()
	}
	out, err := m.forwardAlike(ctx, long)
	if err != nil {
		return nil, err
	}
	st.both.begin(b, out.vocab)
	st.both.collect(b, long, out)
	for i := range others.Rows { // sums go on
		r := &others.Rows[i]
		if k := indexOf(b, r.Sequence); r.Hidden == HiddenSum && len(st.both.rows[k].hidden) > 0 {
			r.Sum = st.both.rows[k].hidden
		}
	}
	st.long = false
	if out, err = m.forwardAlike(ctx, others); err != nil {
		for i := range long.Rows {
			long.Rows[i].Sequence.Truncate(starts[i])
		}
		return nil, err
	}
	st.both.collect(b, others, out)
	return &st.both, nil
}

// indexOf returns the index of the row of s.
func indexOf(b *Batch, s *Sequence) int {
	return slices.IndexFunc(b.Rows, func(r BatchRow) bool { return r.Sequence == s })
}
