package residency

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/internal/atomicfile"
	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/stored"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
)

// A sidecar is a file of converted weights. The disk tier streams it and the cpu tier maps it instead
// of the checkpoint. It is a safetensors file of bytes, with a layout that is known before a weight is
// read. The first start writes it to a temporary file: each matrix when it is first needed, the others
// in the background. The complete file is renamed, and the next start uses it. Each tile of rows has a
// checksum, which is verified before its first use. Damaged tiles are converted again.
type sidecar struct {
	folder     string
	final      string // the name of the complete file
	checkpoint *loader.Checkpoint
	pieces     map[sideKey][]stored.Piece
	jobs       map[*loader.Tensor]*sideJob
	order      []*sideJob
	sums       *loader.Tensor // checksums of a complete file; nil during the first start
	begun      *loader.Tensor // checksums in a file that an earlier process began; nil for others

	mu      sync.Mutex // one conversion at a time, with all threads
	writing *sideFile  // nil if nothing was written so far
	left    int        // matrices that the first start has to write
	err     error      // of renaming the file

	unwritten atomic.Bool // the file cannot be written any more
	late      bool        // converted weights of the cpu tier have no other use of it; see late
	exact     bool        // the format is
	somePlain bool        // matrices of a complete file are used as stored
}

// holds reports whether t belongs to the sidecar, which is written while it is used.
func (c *sidecar) holds(t *loader.Tensor) bool { return c != nil && c.jobs[t] != nil }

// A sideKey is a parameter, or one expert's slab of it.
type sideKey struct {
	param  *meta.Param
	expert int // -1 for the whole parameter
}

// A SidecarError says that converted weights cannot be kept in Dir.
type SidecarError struct {
	Dir string
	Err error
}

func (e *SidecarError) Error() string {
	free := ""
	if atomicfile.IsFull(e.Err) {
		free = "free space there, "
	}
	return fmt.Sprintf("residency: converted weights cannot be kept in %s: %v: %suse another --cache-dir, a larger --max-memory, or the weights as stored", e.Dir, e.Err, free)
}

func (e *SidecarError) Unwrap() error { return e.Err }

// converts reports whether p is converted in memory, before its first use.
func (s *Store) converts(p *meta.Param) bool { return s.sidecar == nil && s.quantizer.takes(p) }

// startSidecar opens the file of converted weights of units. If there is none and some of them are on
// the disk tier, it begins one. Otherwise s.sidecar stays nil.
func (s *Store) startSidecar(units []Unit, folder string) error {
	if folder == "" {
		return nil
	}
	defer atomicfile.RemoveStale(folder) // of killed processes; a file to continue is locked by then
	if s.quantizer.Converter == nil {
		return nil
	}
	list, onDisk, err := s.sideList(units)
	if err != nil || len(list) == 0 {
		return err
	}
	key, err := sideKeyOf(s.binding.Checkpoint(), s.quantizer, list)
	if err != nil {
		return err
	}
	final := filepath.Join(folder, sideName(s.binding.Checkpoint(), s.quantizer.Format()))
	c := s.newSidecar(final)
	if c.checkpoint, err = openSidecar(final, key); err != nil {
		if !onDisk {
			return s.allowLate(units, key, final, list)
		}
		if err := c.begin(key, list, err); err != nil && c.exact {
			slog.Warn("weights on the disk are used as stored, because coded ones cannot be kept", "folder", folder, "reason", err)
			s.leaveStreamed(list)
			return nil
		} else if err != nil {
			return &SidecarError{Dir: folder, Err: err}
		}
	}
	s.sidecar = c
	if c.writing != nil {
		c.writing.intercept = s.mover.InterceptWrite
	}
	if err := c.take(list, s.quantizer); err != nil {
		return err
	}
	return s.holdSidecar(c)
}

func (s *Store) newSidecar(final string) *sidecar {
	return &sidecar{folder: filepath.Dir(final), final: final, exact: s.quantizer.exact()}
}

// begin continues the file that an earlier process did not complete, or lays out a new one. why is
// the reason that there is no complete file. begin logs that a conversion continues, or that a file is
// replaced.
func (c *sidecar) begin(key string, list []sideEntry, why error) (err error) {
	if c.resume(key, list) {
		return nil
	}
	if _, err := os.Stat(c.final); err == nil {
		slog.Warn("converting the weights again", "file", c.final, "reason", why)
	}
	c.writing, c.checkpoint, err = beginSidecar(c.folder, c.final, key, list)
	return err
}

// resume continues the file that an earlier process did not complete, if there is one.
func (c *sidecar) resume(key string, list []sideEntry) bool {
	c.left = len(list)
	if c.writing, c.checkpoint = resumeSidecar(c.final, key, list); c.writing == nil {
		return false
	}
	slog.Info("continuing the conversion of weights that an earlier process began", "file", c.final)
	c.begun, _ = c.checkpoint.Lookup(sideSums)
	return true
}

// leaveStreamed leaves matrices of the disk tier as stored, and stacks of which an expert is there.
func (s *Store) leaveStreamed(list []sideEntry) {
	for i := range list {
		p := list[i].key.param
		if device, _ := s.devices.Device(list[i].path); device == devicemap.Disk {
			delete(s.quantizer.bytes, p)
		}
	}
}

// holdSidecar opens and maps the file under its present name, which may change later.
func (s *Store) holdSidecar(c *sidecar) error {
	t := c.order[0].target
	if _, err := s.files.get(t.File.Path, nil); err != nil {
		return &SidecarError{Dir: c.folder, Err: err}
	}
	_, err := t.Bytes()
	return err
}

// sideList returns the matrices to convert, in the order of use, and whether some of them are on the
// disk tier.
func (s *Store) sideList(units []Unit) (list []sideEntry, onDisk bool, err error) {
	experts := map[*meta.Module]bool{}
	seen := map[*meta.Param]bool{}
	sums := 0
	add := func(p *meta.Param, path string, expert int, pieces []stored.Piece) error {
		device, _ := s.devices.Device(path)
		onDisk = onDisk || device == devicemap.Disk
		for k := range pieces {
			_, size, err := s.quantizer.converted(&pieces[k])
			if err != nil {
				return fmt.Errorf("residency: %s: %w", path, err)
			}
			t := newTiles(pieces[k].Part.Dims[0], s.quantizer.RowGroup(), size, sums)
			sums += t.count
			list = append(list, sideEntry{t, sideKey{p, expert}, path, fmt.Sprintf("%s/%s/%d", path, p.Name, k), pieces[k], size})
		}
		return nil
	}
	for _, u := range units {
		for _, n := range u.Experts {
			experts[n.Module] = true
			for _, p := range n.Module.Params {
				if p = p.Resolve(); !s.quantizer.takes(p) || seen[p] {
					continue
				}
				seen[p] = true
				for e := range p.Shape[0] {
					if err := add(p, expertKey(n.Path, e), e, s.sourcePieces(p, e)); err != nil {
						return nil, false, err
					}
				}
			}
		}
		for _, n := range u.Modules {
			for _, m := range n.Module.Walk() {
				for _, p := range m.Params {
					if p = p.Resolve(); experts[m] || m.Kind == meta.KindEmbedding || !s.quantizer.takes(p) || seen[p] {
						continue
					}
					seen[p] = true
					var pieces []stored.Piece
					for _, part := range s.binding.Tensors(p) {
						pieces = append(pieces, stored.New(part))
					}
					if err := add(p, s.paths[p], -1, pieces); err != nil {
						return nil, false, err
					}
				}
			}
		}
	}
	return list, onDisk, nil
}

// A sideEntry is a matrix of the file.
type sideEntry struct {
	tiles
	key    sideKey
	path   string // of the device map
	name   string
	source stored.Piece
	size   int64 // after the conversion
}

// take makes pieces of the file's tensors, or of the checkpoint's where the file marks a matrix as plain.
func (c *sidecar) take(list []sideEntry, q *quantizer) error {
	c.pieces, c.jobs = map[sideKey][]stored.Piece{}, map[*loader.Tensor]*sideJob{}
	var marks []byte
	if sums, ok := c.checkpoint.Lookup(sideSums); ok && c.writing == nil {
		if c.sums = sums; q.exact() {
			var err error
			if marks, err = sums.Bytes(); err != nil {
				return &SidecarError{Dir: c.folder, Err: err}
			}
		}
	}
	for _, e := range list {
		t, ok := c.checkpoint.Lookup(e.name)
		if !ok || t.Size != e.size {
			return &SidecarError{Dir: c.folder, Err: fmt.Errorf("%s is missing or does not have %d bytes", e.name, e.size)}
		}
		part, _, err := q.converted(&e.source)
		if err != nil {
			return err
		}
		j := &sideJob{tiles: e.tiles, name: e.name, param: e.key.param, source: e.source, target: t}
		c.jobs[t], c.order = j, append(c.order, j)
		if c.sums != nil {
			j.verified = make([]atomic.Uint32, (j.count+31)/32)
			j.left.Store(int32(j.count))
		}
		piece := stored.Piece{Ranges: []stored.Range{{Tensor: t, Size: t.Size}}, Size: t.Size, Part: part}
		if marks != nil && j.markedPlain(marks) {
			piece, c.somePlain = e.source, true
			j.plain.Store(true)
			j.done.Store(true)
		}
		c.pieces[e.key] = append(c.pieces[e.key], piece)
	}
	return nil
}

// makePieces completes the sidecar's matrices of pieces: see make.
func (s *Store) makePieces(ctx context.Context, pieces []stored.Piece) error {
	if s.sidecar == nil {
		return nil
	}
	for i := range pieces {
		for _, r := range pieces[i].Ranges {
			if j := s.sidecar.jobs[r.Tensor]; j != nil && !j.done.Load() {
				if _, err := s.make(ctx, sideRange{sideJob: j, begin: r.Begin, size: r.Size}, nil); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// make converts a matrix into the file unless an earlier start has. Bytes of an earlier start are verified:
// those in read, or in the mapping if read is nil. make converts damaged rows again and reports that. Any
// goroutine may call it; one at a time converts.
func (s *Store) make(ctx context.Context, r sideRange, read []byte) (repaired bool, err error) {
	c, j := s.side(), r.sideJob
	if c.sums != nil {
		return s.verify(ctx, r, read)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if j.done.Load() {
		return false, nil
	}
	if c.begun != nil && c.written(j) {
		return false, c.finished(j)
	}
	if err := s.convertTiles(ctx, j, 0, j.count); err != nil {
		return false, err
	}
	switch {
	case j.unkept.Load():
		s.displacing.changed.Store(true) // the next pass converts it in memory
	case !j.plain.Load():
		evict(&j.source)
	case s.restream:
		s.displacing.changed.Store(true) // the next pass streams it as stored
	}
	return false, c.finished(j)
}

// convertTiles converts tiles [first, end) of a matrix into the file, with their checksums. It marks a
// matrix that an exact format does not make smaller. If the file cannot be written, matrices of an exact format
// are used as stored; the next start continues. The caller holds mu.
func (s *Store) convertTiles(ctx context.Context, j *sideJob, first, end int) error {
	c := s.side()
	if c.unwritten.Load() {
		j.leave(c.exact)
		return nil
	}
	s.quantizer.mu.Lock()
	defer s.quantizer.mu.Unlock()
	sums, err := s.quantizer.convertTo(ctx, c.writing, j, first, end)
	if errors.Is(err, backend.ErrIncompressible) {
		slog.Debug("weights are used as stored", "weights", j.name, "reason", err)
		first, sums, err = 0, slices.Repeat([]uint32{plainSum}, j.count), nil
		j.plain.Store(true)
	}
	if err == nil {
		err = c.writing.note(j.first+first, sums)
	}
	var write *SidecarError
	switch {
	case errors.As(err, &write) && c.exact:
		slog.Warn("weights on the disk are used as stored, because coded ones cannot be written", "weights", j.name, "reason", err)
	case errors.As(err, &write) && c.late:
		s.cannotKeep(err)
	default:
		write = nil
	}
	if write != nil {
		err = nil
		c.unwritten.Store(true)
		j.leave(c.exact)
	}
	if err != nil {
		return fmt.Errorf("residency: converting %s: %w", j.name, err)
	}
	return nil
}

// finished notes that a matrix is in the file. After the last one it renames the file.
func (c *sidecar) finished(j *sideJob) error {
	j.done.Store(true)
	if c.left--; c.left <= 0 && !c.unwritten.Load() {
		c.err = c.writing.finish()
	}
	return nil
}

// isUnwritten reports whether the file cannot be written any more.
func (c *sidecar) isUnwritten() bool {
	return c != nil && c.unwritten.Load()
}

// written reports whether the earlier process that began the file has completed a matrix.
func (c *sidecar) written(j *sideJob) bool {
	sums, err := c.begun.Bytes()
	if err != nil {
		return false
	}
	for k := range j.count {
		if binary.LittleEndian.Uint32(sums[4*(j.first+k):]) == 0 { // none; also the checksum of one tile in four billion
			return false
		}
	}
	if c.exact && j.markedPlain(sums) {
		j.plain.Store(true)
		return true
	}
	data, err := j.target.Bytes()
	return err == nil && j.differs(data, sums, 0) < 0
}

// verify verifies the checksums of r's bytes: those in read, or in the mapping if read is nil. It converts
// damaged rows again and reports that.
func (s *Store) verify(ctx context.Context, r sideRange, read []byte) (repaired bool, err error) {
	for i := range max(r.lines, 1) {
		l := r.line(i)
		var own []byte
		if read != nil {
			own = read[int64(i)*l.size:][:l.size]
		}
		again, err := s.verifyLine(ctx, l, own)
		if err != nil {
			return false, err
		}
		repaired = repaired || again
	}
	return repaired, nil
}

func (s *Store) verifyLine(ctx context.Context, r sideRange, read []byte) (repaired bool, err error) {
	c, j := s.side(), r.sideJob
	first, end := j.of(r.begin, r.size)
	if j.intact(first, end) {
		return false, nil
	}
	if read == nil {
		if read, err = j.target.Bytes(); err != nil {
			return false, err
		}
		read = read[r.begin : r.begin+r.size]
	}
	sums, err := c.sums.Bytes()
	if err != nil {
		return false, err
	}
	if j.differs(read, sums, first) < 0 {
		j.mark(first, end)
		return false, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	slog.Warn("converting a damaged matrix again", "file", c.final, "matrix", j.name)
	if c.writing == nil {
		f, err := os.OpenFile(c.final, os.O_RDWR, 0)
		if err != nil {
			return false, &SidecarError{Dir: c.folder, Err: fmt.Errorf("%s is damaged: %w", j.name, err)}
		}
		_, sums, _ := c.sums.Location()
		c.writing = &sideFile{f: f, sums: sums, intercept: s.mover.InterceptWrite}
	}
	if err := s.convertTiles(ctx, j, first, end); err != nil {
		return false, err
	}
	if j.mark(first, end); j.plain.Load() {
		j.done.Store(true)
	}
	c.err = c.writing.finish()
	return true, nil
}

// finishSidecar converts the matrices that no pass has needed yet, for the next start. It calls pace, if not nil, before
// each.
func (s *Store) finishSidecar(ctx context.Context, c *sidecar, pace func(context.Context) error) error {
	if c == nil || c.sums != nil {
		return nil
	}
	for _, j := range c.order {
		if pace != nil && !j.done.Load() {
			if err := pace(ctx); err != nil {
				return err
			}
		}
		if _, err := s.make(ctx, sideRange{sideJob: j, size: j.target.Size}, nil); err != nil {
			return err
		}
	}
	for _, j := range c.order { // again, as the system maps whole huge pages with their neighbours
		if !j.plain.Load() {
			evict(&j.source)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return &SidecarError{Dir: c.folder, Err: c.err}
	}
	return nil
}

// close closes the file. It keeps an incomplete file for the next start if the file has a converted
// matrix, and removes it otherwise.
func (c *sidecar) close() {
	if c == nil {
		return
	}
	switch {
	case c.writing == nil:
	case slices.ContainsFunc(c.order, func(j *sideJob) bool { return j.done.Load() }):
		c.writing.leave()
	default:
		c.writing.abandon()
	}
	if c.checkpoint != nil {
		_ = c.checkpoint.Close() // opened for reading
	}
}

var errStale = errors.New("the file belongs to another version of the checkpoint or of Heft")
