package deviceweights

import (
	"errors"
	"fmt"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/hostmem"
	"github.com/heftai/heft/internal/stored"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// A Host has the weights of units in host memory while they are used, as nn.Weights and
// nn.BandedWeights do.
type Host interface {
	Parts(p *meta.Param, expert int) []backend.Part
	Err() error
	WantExperts(m *meta.Module, experts []int32)
	HoldExperts(m *meta.Module, experts []int32) (int, error)
	Banded(p *meta.Param) bool
	NextBand(p *meta.Param) []backend.Part
}

// A Stream brings weights of a [Host] to a device when a rule asks for them, through two rings of
// the device's memory: one for what a unit uses as a whole, one for experts. It implements
// nn.Weights and nn.BandedWeights but for Buffer. One goroutine uses it, between [Stream.Begin] and
// [Stream.End] of a unit.
//
// If the device is a [backend.Filler], copies run beside operations, and memory is filled again when the
// operations that read it have ended.
type Stream struct {
	host       Host
	memory     backend.Memory
	filler     backend.Filler // nil if copies wait for operations
	convert    Conversion
	rows       []byte // of a converted matrix, on their way to the device
	size       StreamSize
	whole      ring
	lot        ring // experts
	parts      map[key]*brought
	each       map[*meta.Module]int // experts of a stack that fit into lot together
	unit       int                  // Begin's so far
	holds      int                  // HoldExperts's so far
	copied     int64                // bytes
	band       int                  // regions of the band that is in use, the last of whole
	err        error
	hostFailed bool
}

// brought is the parts of a key, with what they were brought for.
type brought struct {
	parts []backend.Part
	turn  int
}

// A StreamSize is the memory of a [Stream], in bytes.
type StreamSize struct{ Whole, Experts int64 }

// Bytes is the memory of both rings.
func (s StreamSize) Bytes() int64 { return s.Whole + s.Experts }

// A sizer finds the memory that units need.
type sizer struct{ whole, experts, expert int64 }

// usualLot is the memory for experts beyond which a stream does not go unless it must.
const usualLot = 256 << 20

// StreamSizeOf returns the memory to stream units through: room for two of the largest, so that the next
// one is copied while one computes. Each unit is the parameters of modules, but for those of stacks, whose
// experts stream a few at a time.
// loaded has the sizes of parameters that are converted.
func StreamSizeOf(units [][2][]*meta.Module, loaded map[*meta.Param]int64) StreamSize {
	var most sizer
	for _, u := range units {
		s := sizeUnit(u[0], u[1], loaded)
		most.whole, most.expert, most.experts = max(most.whole, s.whole), max(most.expert, s.expert), max(most.experts, s.experts)
	}
	out := StreamSize{Whole: 2 * most.whole}
	if most.expert > 0 {
		out.Experts = 2 * max(min(most.experts, usualLot), most.expert)
	}
	return out
}

// sizeUnit returns what one unit needs.
func sizeUnit(modules, stacks []*meta.Module, loaded map[*meta.Param]int64) (s sizer) {
	stacked := map[*meta.Module]bool{}
	for _, m := range stacks {
		stacked[m] = true
	}
	for _, root := range modules {
		for _, m := range root.Walk() {
			if stacked[m] {
				one, count := expertBytes(m, loaded)
				s.expert, s.experts = max(s.expert, one), s.experts+one*int64(count)
				continue
			}
			for _, p := range m.Params {
				s.whole += paramBytes(p.Resolve(), loaded)
			}
		}
	}
	return s
}

// paramBytes is the room of a parameter, which a checkpoint may store in several tensors.
func paramBytes(p *meta.Param, loaded map[*meta.Param]int64) int64 {
	const tensors = 8 // of a source: codes with scales, in a few pieces
	return loadedBytes(p, loaded) + tensors*ringAlign*int64(max(len(p.Sources), 1))
}

// loadedBytes is the size of a parameter in memory.
func loadedBytes(p *meta.Param, loaded map[*meta.Param]int64) int64 {
	if n := loaded[p]; n > 0 {
		return n
	}
	return p.Bytes()
}

// expertBytes is the room of an expert of a stack, and their number.
func expertBytes(m *meta.Module, loaded map[*meta.Param]int64) (one int64, count int) {
	for _, p := range m.Params {
		p = p.Resolve()
		count = p.Shape[0]
		one += aligned(loadedBytes(p, loaded)/int64(max(count, 1))) + paramBytes(p, loaded) - loadedBytes(p, loaded)
	}
	return one, count
}

// NewStream allocates memory of the device. What the host has converted is stored there as convert stores it.
func NewStream(memory backend.Memory, host Host, convert Conversion, size StreamSize) (*Stream, error) {
	s := &Stream{host: host, memory: memory, convert: convert, size: size, parts: map[key]*brought{}, each: map[*meta.Module]int{}}
	s.filler, _ = memory.(backend.Filler)
	var err error
	if s.whole, err = newRing(memory, size.Whole); err == nil {
		s.lot, err = newRing(memory, size.Experts)
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// Close frees the memory.
func (s *Stream) Close() {
	for _, r := range []*ring{&s.whole, &s.lot} {
		if !r.memory.IsZero() {
			s.memory.Free(r.memory)
		}
	}
	s.whole, s.lot = ring{}, ring{}
}

// Bytes is the memory of the device that s has.
func (s *Stream) Bytes() int64 { return s.size.Bytes() }

// Begin begins a unit, whose weights are acquired of the host.
func (s *Stream) Begin() {
	s.unit, s.band, s.err, s.hostFailed = s.unit+1, 0, nil, false
}

// End ends the unit that has begun. Its operations may still run.
func (s *Stream) End() {
	fence := s.fence()
	s.whole.release(fence)
	s.lot.release(fence)
	s.holds++
	s.band = 0
}

func (s *Stream) fence() backend.Fence {
	if s.filler == nil {
		return 0
	}
	return s.filler.Fence()
}

// Err returns the error of the last Parts or NextBand that has failed in the unit.
func (s *Stream) Err() error { return s.err }

// HostFailed reports whether the host has failed in the unit: a read of weights, or its memory.
func (s *Stream) HostFailed() bool { return s.hostFailed }

// fails keeps an error of the host.
func (s *Stream) fails(err error) {
	s.err, s.hostFailed = err, err != nil
}

// Parts returns the pieces of p, or of one expert's slab, on the device.
func (s *Stream) Parts(p *meta.Param, expert int) []backend.Part {
	k, r, turn := key{param: p, expert: expert}, &s.whole, s.unit
	if expert >= 0 {
		r, turn = &s.lot, s.holds
	}
	banded := expert < 0 && s.host.Banded(p)
	b := s.parts[k]
	if b == nil {
		b = &brought{}
		s.parts[k] = b
	}
	if b.turn == turn && !banded {
		return b.parts
	}
	s.endBand()
	return s.bring(b, r, p, s.host.Parts(p, expert), turn, banded)
}

// Banded reports whether p comes in bands.
func (s *Stream) Banded(p *meta.Param) bool { return s.host.Banded(p) }

// NextBand returns the next band of p.
func (s *Stream) NextBand(p *meta.Param) []backend.Part {
	s.endBand()
	host := s.host.NextBand(p)
	if host == nil {
		s.fails(s.host.Err())
		return nil
	}
	return s.bring(s.parts[key{param: p, expert: -1}], &s.whole, p, host, s.unit, true)
}

// endBand ends the use of a band.
func (s *Stream) endBand() {
	if s.band > 0 {
		s.whole.releaseLast(s.band, s.fence())
		s.band = 0
	}
}

// bring copies parts of the host to the device.
func (s *Stream) bring(b *brought, r *ring, p *meta.Param, host []backend.Part, turn int, band bool) []backend.Part {
	if host == nil {
		s.fails(s.host.Err())
		return nil
	}
	for len(b.parts) < len(host) {
		b.parts = append(b.parts, backend.Part{})
	}
	b.parts, b.turn = b.parts[:len(host)], 0
	regions := 0
	for i := range host {
		quant := b.parts[i].Quant
		b.parts[i] = host[i]
		if q := host[i].Quant; q != nil {
			if quant == nil {
				quant = new(backend.Quant)
			}
			*quant = *q
			b.parts[i].Quant = quant
		}
		for k := 0; ; k++ {
			data, ok := stored.Memory(&host[i], k)
			if !ok {
				break
			}
			t, err := s.copyIn(r, p, &b.parts[i], data)
			if err != nil {
				s.err = err
				return nil
			}
			stored.Place(&b.parts[i], k, t)
			regions++
		}
	}
	b.turn = turn
	if band {
		s.band = regions
	}
	return b.parts
}

// copyIn copies bytes of a part to a region of r. A fault in a mapping is a *backend.FaultError.
func (s *Stream) copyIn(r *ring, p *meta.Param, part *backend.Part, data []byte) (t tensor.Tensor, err error) {
	t, after, err := r.take(len(data))
	if err != nil {
		return t, fmt.Errorf("%s: %w", p.Name, err)
	}
	if q := part.Quant; q != nil && q.Height > 0 && s.convert.Deinterleaver != nil {
		return t, s.copySeparate(t, p, part, data, after)
	}
	if panicked := hostmem.Guard(func() { err = s.fill(t, data, after) }); panicked != nil {
		if address, fault := hostmem.FaultAddress(panicked); fault {
			s.hostFailed = true
			return t, &backend.FaultError{Address: address}
		}
		return t, fmt.Errorf("deviceweights: copying %s: %v", p.Name, panicked)
	}
	return t, err
}

// separateBytes is how many bytes of a converted matrix are put into rows at a time, or one group of rows.
const separateBytes = 4 << 20

// copySeparate copies a converted matrix of the host to t, in rows, some groups of rows at a time.
func (s *Stream) copySeparate(t tensor.Tensor, p *meta.Param, part *backend.Part, data []byte, after backend.Fence) error {
	rows, group := part.Dims[0], s.convert.RowGroup()
	part.Quant.Height, part.Quant.Ascending = 0, true
	if rows == 0 {
		return nil
	}
	row := len(data) / rows // bytes
	each := max(separateBytes/max(row, 1)/group, 1) * group
	if need := min(each, rows) * row; len(s.rows) < need {
		s.rows = make([]byte, need)
	}
	for first := 0; first < rows; first += each {
		some := *part
		some.Dims[0] = min(each, rows-first)
		begin, end := first*row, (first+some.Dims[0])*row
		if err := s.convert.Deinterleave(s.rows[:end-begin], data[begin:end], &some); err != nil {
			if fault := (*backend.FaultError)(nil); errors.As(err, &fault) {
				s.hostFailed = true
			}
			return fmt.Errorf("%s: %w", p.Name, err)
		}
		if err := s.fill(t.Slice(begin, end), s.rows[:end-begin], after); err != nil {
			return err
		}
	}
	return nil
}

// Copied returns the bytes that were copied to the device so far.
func (s *Stream) Copied() int64 { return s.copied }

func (s *Stream) fill(t tensor.Tensor, data []byte, after backend.Fence) error {
	s.copied += int64(len(data))
	if s.filler != nil {
		return s.filler.Fill(t, data, after)
	}
	host := tensor.Tensor{DType: meta.Uint8, Rank: 1, Data: data}
	host.Dims[0] = len(data)
	return s.memory.Copy(t, host)
}

// WantExperts announces experts to the host.
func (s *Stream) WantExperts(m *meta.Module, experts []int32) { s.host.WantExperts(m, experts) }

// HoldExperts returns how many of experts the host has in memory, at most as many as the device has room for.
func (s *Stream) HoldExperts(m *meta.Module, experts []int32) (int, error) {
	s.lot.release(s.fence())
	s.holds++
	n, err := s.host.HoldExperts(m, experts)
	if err != nil {
		s.fails(err)
	}
	most, ok := s.each[m]
	if !ok {
		one, _ := expertBytes(m, s.convert.Params)
		most = max(1, int(s.size.Experts/max(one, 1))-1)
		s.each[m] = most
	}
	return min(n, most), err
}
