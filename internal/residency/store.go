package residency

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/hostmem"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
)

// A Unit is what runs as a whole: its weights are present together.
type Unit struct {
	Path    string
	Modules []Node // the subtrees whose parameters and buffers it reads
	Experts []Node // the stacks within them, of which it reads chosen experts
}

// A Node is a module and its path.
type Node struct {
	Path   string
	Module *meta.Module
}

// Options size a store.
type Options struct {
	Ledger *hostmem.Ledger
	// Staging is the memory for the rings in bytes. Less than Least is raised to it.
	Staging int64
	// Quantize is QuantQ8 or QuantQ4 to hold the matrices of the cpu tier in that format,
	// with QuantNone as they are stored. They are converted with so many Threads and the
	// kernels of Variant; "" is the best.
	Quantize meta.QuantFormat
	Threads  int
	Variant  string
	// SidecarDir is the folder of files of converted weights: one is written where some of
	// them belong on the disk tier, and one that is there is used. "" is none: then weights
	// of the disk tier are not converted, which is an error.
	SidecarDir string
	// Homes are the memory nodes of the threads that compute, in order: promoted weights are
	// put where the rows' thread is. nil leaves them to the system.
	Homes []int
}

// A Store holds the weights of one model.
type Store struct {
	binding *loader.Binding
	devices devicemap.Map
	homes   []int
	ledger  *hostmem.Ledger
	paths   map[*meta.Param]string

	units     []unit
	entries   map[*meta.Param]*entry
	converted map[*meta.Param]*entry // those of the file of converted weights
	buffers   map[*meta.Buffer]tensor.Tensor
	stacks    map[*meta.Module]*stack

	ring     *ring // of units; nil where nothing is streamed
	streamed []int // the units that have a load, in order; index in it is the ring's id
	experts  *ring // of experts
	wishes   []int // scratch

	stackOrder   []*stack
	slabs        map[*meta.Param]slab
	heldExperts  []int // of the disk tier: their ids in the ring
	wanted       []int // what is left of expertWishes
	expertWishes []int

	blocks   []*hostmem.Block
	files    files
	tiers    map[devicemap.Device]int64
	read     atomic.Int64
	held     int           // unit between Acquire and Release, or -1
	acquired atomic.Uint64 // calls of Acquire
	warm     progress
	promoter promoter

	quantizer *quantizer
	sidecar   *sidecar // nil where nothing is converted, or all of it in memory
}

// New sorts the parameters of units into tiers by devices. It reads nothing and maps
// nothing; the disk tier's rings are taken from memory. root is the whole tree.
func New(root *meta.Module, units []Unit, binding *loader.Binding, devices devicemap.Map, o Options) (*Store, error) {
	s := &Store{
		binding: binding, devices: devices, homes: o.Homes, ledger: o.Ledger,
		paths:   map[*meta.Param]string{},
		entries: map[*meta.Param]*entry{}, converted: map[*meta.Param]*entry{},
		buffers: map[*meta.Buffer]tensor.Tensor{},
		stacks:  map[*meta.Module]*stack{},
		slabs:   map[*meta.Param]slab{},
		tiers:   map[devicemap.Device]int64{},
		files:   files{open: map[string]*hostmem.DirectFile{}},
		held:    -1,
	}
	s.warm.changed.L = &s.warm.mu
	var err error
	if s.quantizer, err = newQuantizer(root, o); err != nil {
		return nil, err
	}
	for path, p := range root.AllParams() {
		if p.SameAs == nil {
			s.paths[p] = path
		}
	}
	if err := s.startSidecar(units, o.SidecarDir); err != nil {
		s.Close()
		return nil, err
	}
	loads, err := s.sort(units)
	if err != nil {
		s.Close()
		return nil, err
	}
	if err := s.startRings(loads, o.Staging); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// startRings takes memory for two or more slots of the largest load of each kind.
func (s *Store) startRings(loads []*load, staging int64) error {
	var largest int64
	for _, l := range loads {
		largest = max(largest, l.slot)
	}
	expert, streamed := s.largestExpert()
	unitSlots, expertSlots := slots(staging, largest, len(loads), expert, streamed)
	if unitSlots > 0 {
		buffers, err := s.buffersOf(unitSlots, largest)
		if err != nil {
			return err
		}
		s.ring = newRing(loads, buffers, s.fill)
		s.ring.wish(s.ahead(0))
	}
	if expertSlots > 0 {
		buffers, err := s.buffersOf(expertSlots, expert)
		if err != nil {
			return err
		}
		s.experts = newRing(make([]*load, s.expertLoads()), buffers, s.fill)
	}
	return nil
}

// slots divides the staging memory: two slots for each ring that is needed, and what
// is left for more experts, which come again, or for all units where they fit.
func slots(staging, largest int64, loads int, expert int64, streamed int) (units, experts int) {
	if loads > 0 {
		units = min(2, loads)
		staging -= int64(units) * largest
	}
	if streamed > 0 {
		return units, min(streamed, max(2, int(staging/expert)))
	}
	if loads > 0 {
		units = min(loads, units+max(0, int(staging/largest)))
	}
	return units, experts
}

func (s *Store) buffersOf(n int, size int64) ([][]byte, error) {
	buffers := make([][]byte, n)
	for i := range buffers {
		b, err := hostmem.Alloc(s.ledger, hostmem.Staging, int(size))
		if err != nil {
			return nil, fmt.Errorf("residency: ring of %d slots of %d bytes: %w", n, size, err)
		}
		s.blocks = append(s.blocks, b)
		buffers[i] = b.Bytes()
	}
	return buffers, nil
}

// ahead are the loads that follow from unit i on, in the order in which they will be
// wanted, around the end to the next pass. i's own comes first.
func (s *Store) ahead(i int) []int {
	s.wishes = s.wishes[:0]
	start := 0
	for start < len(s.streamed) && s.streamed[start] < i {
		start++
	}
	for k := range s.streamed {
		s.wishes = append(s.wishes, (start+k)%len(s.streamed))
	}
	return s.wishes
}

// Acquire makes the weights of unit i present, until Release. Units are acquired one
// at a time.
func (s *Store) Acquire(i int) error {
	if s.held >= 0 {
		return fmt.Errorf("residency: unit %s is still held", s.units[s.held].Path)
	}
	s.acquired.Add(1)
	u := &s.units[i]
	var slot []byte
	if u.load >= 0 {
		s.ring.wish(s.ahead(i))
		var err error
		if slot, err = s.ring.hold(u.load, true); err != nil {
			return fmt.Errorf("residency: %s: %w", u.Path, err)
		}
	}
	for _, w := range u.wants {
		if err := s.bring(&w, u.load, slot); err != nil {
			if u.load >= 0 {
				s.ring.release(u.load)
			}
			return err
		}
	}
	s.held = i
	return nil
}

// bring points the entry's parts to the slot, to the checkpoint in place, or to a copy.
func (s *Store) bring(w *want, load int, slot []byte) error {
	e := w.entry
	if w.convert {
		made, err := s.convertEntry(context.Background(), e)
		if err == nil {
			e.parts = made.parts
		}
		return err
	}
	if !w.gather {
		s.warm.await(e)
	}
	w.shown.parts = e.stored
	if !w.streamed && !e.taken {
		if made := e.promoted.Load(); made != nil {
			made.takeUp(e.pieces, func(k int) *backend.Part { return &e.stored[k] })
			e.taken, e.present = true, true
		}
	}
	if !w.streamed && e.present {
		return nil
	}
	if !w.streamed {
		if err := s.makePieces(context.Background(), e.pieces); err != nil {
			return err
		}
	}
	first := w.first
	for k := range e.pieces {
		p := &e.pieces[k]
		if w.streamed {
			inSlot(p, &e.stored[k], slot, s.ring.loads[load].places[first:])
			first += len(p.Ranges)
		} else if err := p.InPlace(&e.stored[k]); err != nil {
			return err
		}
	}
	e.present = !w.streamed
	return nil
}

// Release lets the weights of the acquired unit go.
func (s *Store) Release() {
	if s.held < 0 {
		return
	}
	u := &s.units[s.held]
	s.held = -1
	if u.load >= 0 {
		s.ring.release(u.load)
	}
	s.releaseExperts()
	u.letGo()
}

// letGo unmaps the rows that were looked up in tables of the disk tier, which a long run
// would come to hold whole. The system's cache keeps them, so that they are soon back.
func (u *unit) letGo() {
	for i := range u.wants {
		w := &u.wants[i]
		if !w.gather || w.device != devicemap.Disk {
			continue
		}
		for k := range w.pieces {
			for _, r := range w.pieces[k].Ranges {
				_ = r.Tensor.Advise(r.Begin, r.Size, loader.DontNeed) // only a hint
			}
		}
	}
}

// Parts are the pieces of p, or of one expert's slab of it: see nn.Weights.
func (s *Store) Parts(p *meta.Param, expert int) []backend.Part {
	if expert >= 0 {
		return s.expertParts(p, expert)
	}
	if e := s.entries[p]; e != nil {
		return e.parts
	}
	return nil
}

// Buffer is a buffer's values as float32, absent where the checkpoint has none.
func (s *Store) Buffer(b *meta.Buffer) tensor.Tensor { return s.buffers[b] }

// Stats are counters of a store. They may be read from any goroutine.
type Stats struct {
	TierBytes map[devicemap.Device]int64 // weights on each tier
	ReadBytes int64                      // read from the disk tier so far
	Stall     time.Duration              // computation has waited for them
}

// Stats reads the counters.
func (s *Store) Stats() Stats {
	out := Stats{TierBytes: s.tiers, ReadBytes: s.read.Load()}
	for _, r := range []*ring{s.ring, s.experts} {
		if r != nil {
			out.Stall += r.stalled()
		}
	}
	return out
}

// Close stops the readers and gives the rings' memory back. The checkpoint stays open.
func (s *Store) Close() {
	s.warm.stop()
	s.promoter.stop()
	for _, r := range []*ring{s.ring, s.experts} {
		if r != nil {
			r.close()
		}
	}
	for _, b := range s.blocks {
		_ = b.Release() // released nowhere else
	}
	s.blocks = nil
	s.quantizer.release()
	s.files.close()
	s.sidecar.close()
}

// files are the shards, opened for direct reads at first use.
type files struct {
	mu   sync.Mutex
	open map[string]*hostmem.DirectFile
}

// get opens the file at path, and asks verify, if there is one, what was opened.
func (f *files) get(path string, verify func() error) (*hostmem.DirectFile, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if d := f.open[path]; d != nil {
		return d, nil
	}
	d, err := hostmem.OpenDirect(path)
	if err != nil {
		return nil, err
	}
	if verify != nil {
		if err := verify(); err != nil {
			_ = d.Close() // opened for reading
			return nil, err
		}
	}
	f.open[path] = d
	return d, nil
}

func (f *files) close() {
	for _, d := range f.open {
		_ = d.Close() // opened for reading
	}
	f.open = map[string]*hostmem.DirectFile{}
}

// expertKey is the map key of one expert of a stack.
func expertKey(path string, e int) string { return path + "." + strconv.Itoa(e) }
