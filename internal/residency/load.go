package residency

import (
	"context"
	"fmt"
	"slices"

	"github.com/heftai/heft/internal/hostmem"
	"github.com/heftai/heft/loader"
)

const (
	// maxRead is the maximum size of one direct read.
	maxRead = 8 << 20
	// blockSize is the alignment of direct reads.
	blockSize = 4096
	// readGap is the maximum number of unneeded bytes that are read to join two regions into one
	// extent.
	readGap = blockSize
)

// A region is a range of a checkpoint that a load reads.
type region struct {
	tensor *loader.Tensor
	path   string // "" for a checkpoint in memory
	off    int64  // in the file, or in the tensor's bytes
	size   int64
	lines  int   // the region consists of this many parts of equal size
	pitch  int64 // bytes from the start of a line to that of the next one
}

// newRegion returns the range [begin, begin+size) of t's bytes.
func newRegion(t *loader.Tensor, begin, size int64) region {
	r := region{tensor: t, off: begin, size: size}
	if path, off, _ := t.Location(); path != "" {
		r.path, r.off = path, off+begin
	}
	return r
}

// A load is the data that is read into one slot: extents of files, at offsets in the slot.
type load struct {
	extents []extent
	pieces  []piece       // the reads, in the order of the extents
	request int64         // size for which pieces was made
	places  []int64       // offset of each region in the slot, in the order given to newLoad
	slot    int64         // size in the slot, in bytes
	read    int64         // bytes read
	jobs    []sideRange   // of each region, zero for those in the checkpoint itself; empty if all are
	unit    *unitActivity // that its reads are counted for

	stripes int   // number of reads of a load whose regions have lines, otherwise 0
	scratch int64 // offset in the slot of the memory of these reads
	room    int64 // bytes of each of them
}

type extent struct {
	region
	at int64 // place in the slot, a multiple of blockSize
}

// A piece is the part of an extent that one read fetches. For extents of files, begin and end are
// relative to the aligned start.
type piece struct {
	extent     int
	begin, end int64
}

// newLoad lays out the regions in a slot. Adjacent regions of a file are read together unless
// apart is set.
func newLoad(regions []region, apart bool) *load {
	order := make([]int, len(regions))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		x, y := regions[a], regions[b]
		if x.path != y.path {
			return compare(x.path, y.path)
		}
		return compare(x.off, y.off)
	})
	l := &load{places: make([]int64, len(regions))}
	for _, i := range order {
		r := regions[i]
		if n := len(l.extents); apart || n == 0 || !l.extents[n-1].extend(r) {
			l.extents = append(l.extents, extent{r, l.slot})
		}
		e := &l.extents[len(l.extents)-1]
		l.places[i] = e.at + e.lead() + r.off - e.off
		l.slot = e.at + int64(hostmem.Up(int(e.lead()+e.size), blockSize))
	}
	for i := range l.extents {
		l.read += l.extents[i].size
	}
	return l
}

// cut divides the load into reads of at most request bytes.
func (l *load) cut(request int64) {
	if l.request == request {
		return
	}
	l.request, l.pieces = request, l.pieces[:0]
	if l.stripes > 0 {
		l.pieces = make([]piece, l.stripes)
		return
	}
	for i := range l.extents {
		l.pieces = l.extents[i].cut(l.pieces, i, request)
	}
}

// align moves regions that were laid out apart to multiples of blockSize.
func (l *load) align(slot []byte) {
	for i := range l.extents {
		e := &l.extents[i]
		copy(slot[e.at:], slot[e.at+e.lead():][:e.size])
	}
	for i := range l.places {
		l.places[i] &^= blockSize - 1
	}
}

// cut appends the pieces of extent i. They have about the same size, to avoid a small last piece,
// which would cost a whole latency.
func (e *extent) cut(to []piece, i int, request int64) []piece {
	size := e.lead() + e.size
	count := (size + request - 1) / request
	each := int64(hostmem.Up(int((size+max(count, 1)-1)/max(count, 1)), blockSize))
	for begin := int64(0); begin < size; begin += each {
		to = append(to, piece{i, begin, min(begin+each, size)})
	}
	return to
}

func compare[T int64 | string](a, b T) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// extend widens e to include r, if r follows closely in the same file.
func (e *extent) extend(r region) bool {
	if e.path == "" || e.path != r.path || r.off > e.off+e.size+readGap {
		return false
	}
	e.size = max(e.size, r.off+r.size-e.off)
	return true
}

// lead returns the number of bytes before the extent that an aligned read includes.
func (e *extent) lead() int64 {
	if e.path == "" {
		return 0
	}
	return e.off % blockSize
}

// fill reads a piece of the extent into slot.
func (e *extent) fill(p piece, slot []byte, open func(e *extent) (*hostmem.DirectFile, error)) error {
	if e.path == "" {
		_, err := e.tensor.ReadAt(slot[e.at+p.begin:e.at+p.end], e.off+p.begin)
		return err
	}
	f, err := open(e)
	if err != nil {
		return err
	}
	start := e.off - e.lead() + p.begin // aligned
	if _, err := f.ReadAt(slot[e.at+p.begin:], start, p.end-p.begin); err != nil {
		return fmt.Errorf("%s at byte %d: %w", e.tensor.Name, start, err)
	}
	return nil
}

// prepare converts the matrices of the load that the sidecar does not have yet.
func (s *Store) prepare(l *load) error {
	if c := s.side(); c != nil && c.sums == nil {
		_, err := s.makeLoad(l, nil)
		return err
	}
	return nil
}

// finish verifies sidecar bytes that an earlier start has written. It converts damaged rows
// again, and rereads the load.
func (s *Store) finish(l *load, slot []byte) error {
	if c := s.side(); c == nil || c.sums == nil || l.made() {
		return nil
	}
	repaired, err := s.makeLoad(l, slot)
	if err != nil || !repaired {
		return err
	}
	for i := range l.pieces {
		if _, err := s.readPiece(l, i, slot); err != nil {
			return err
		}
	}
	return nil
}

// open returns the file of an extent. It checks that it is the file whose header was read.
func (s *Store) open(e *extent) (*hostmem.DirectFile, error) {
	verify := e.tensor.File.Verify
	if s.side().holds(e.tensor) {
		verify = nil // it is ours, and is renamed while it is in use
	}
	return s.files.get(e.path, verify)
}

// read reads a piece of a load of the disk tier.
func (s *Store) read(l *load, k int, slot []byte) error {
	n, err := s.readPiece(l, k, slot)
	s.bytesRead.Add(n)
	l.unit.readFromDisk(n)
	return err
}

// readPiece reads a piece of a load, and reads it again if the file changed meanwhile, so that the bytes
// match the rest of the checkpoint. It is [loader.File.ReadUnchanged] without allocations.
func (s *Store) readPiece(l *load, k int, slot []byte) (int64, error) {
	if l.stripes > 0 {
		return s.readStripe(l, k, slot)
	}
	p := l.pieces[k]
	e := &l.extents[p.extent]
	for {
		epoch := e.tensor.File.Epoch()
		if err := e.fill(p, slot, s.opener); err != nil {
			return 0, err
		}
		if !s.side().holds(e.tensor) {
			if err := e.tensor.File.Unchanged(); err != nil {
				return 0, err
			}
			if e.tensor.File.Epoch() != epoch {
				continue
			}
		}
		return p.end - max(p.begin, e.lead()), nil
	}
}

// loadJobs returns the conversion jobs that regions depend on.
func (s *Store) loadJobs(regions []region) []sideRange {
	c := s.side()
	if c == nil {
		return nil
	}
	jobs := make([]sideRange, len(regions))
	for i, r := range regions {
		if j := c.jobs[r.tensor]; j != nil {
			_, at, _ := r.tensor.Location()
			jobs[i] = sideRange{sideJob: j, begin: r.off - at, size: r.size, lines: r.lines, pitch: r.pitch}
		}
	}
	return jobs
}

// made reports whether everything that the load reads is in the file and intact.
func (l *load) made() bool {
	for i := range l.jobs {
		if !l.jobs[i].ready() {
			return false
		}
	}
	return true
}

// makeLoad converts the load's missing matrices into the sidecar, or verifies the bytes that were
// read into slot. It reports whether damaged rows were converted again.
func (s *Store) makeLoad(l *load, slot []byte) (repaired bool, err error) {
	for i := range l.jobs {
		r := &l.jobs[i]
		if r.ready() {
			continue
		}
		var read []byte
		if slot != nil {
			read = slot[l.places[i]:][:r.size]
		}
		again, err := s.ensure(context.Background(), *r, read)
		if err != nil {
			return false, err
		}
		repaired = repaired || again
	}
	return repaired, nil
}
