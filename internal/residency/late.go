package residency

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/hostmem"
	"github.com/heftai/heft/internal/stored"
)

// The states of a late sidecar.
const (
	lateOff        int32 = iota // never
	latePossible                // begun when weights first do not fit
	lateThere                   // exists
	lateImpossible              // cannot be written; weights that do not fit are converted in each pass
)

// A late sidecar belongs to a store whose plan has all weights in memory. It is begun when
// converted weights are evicted, so that later passes stream them instead of converting them
// again. A pass writes the weights that it converts; a background goroutine writes the rest.
// Segments keep the pieces of the checkpoint; see want.from.
type late struct {
	units  []Unit
	key    string
	final  string
	state  atomic.Int32
	file   atomic.Pointer[sidecar]
	wanted atomic.Bool // a converted segment does not fit
	warned atomic.Bool // a warning that it cannot be written was logged
}

// side returns the sidecar, early or late, or nil.
func (s *Store) side() *sidecar {
	if s.sidecar != nil {
		return s.sidecar
	}
	return s.late.file.Load()
}

// allowLate allows a late sidecar. It continues one that an earlier process began.
func (s *Store) allowLate(units []Unit, key, final string, list []sideMatrix) error {
	l := &s.late
	if s.binding.Checkpoint().Dir() == "" {
		return nil // in memory
	}
	l.units, l.key, l.final = units, key, final
	l.state.Store(latePossible)
	c := s.newSidecar(final)
	if !c.resume(key, list) {
		return nil
	}
	return s.useLate(c, list)
}

// missed records that a segment that is converted in memory does not fit.
func (s *Store) missed(g *segment) {
	if g.converts() && !s.late.wanted.Load() {
		s.late.wanted.Store(true)
		s.displacing.changed.Store(true)
	}
}

// streamsConverted reports whether g, which is converted in memory, streams from the late sidecar
// if it does not fit.
func (s *Store) streamsConverted(g *segment) bool {
	switch s.late.state.Load() {
	case latePossible:
		return true
	case lateThere:
		c := s.late.file.Load()
		return !c.unwritten.Load() || c.keeps(s.sidePieces(g))
	}
	return false
}

// keeps reports whether the file has all the pieces.
func (c *sidecar) keeps(pieces []stored.Piece) bool {
	for i := range pieces {
		if j := c.jobs[pieces[i].Ranges[0].Tensor]; j != nil && !j.kept() {
			return false
		}
	}
	return true
}

// sidePieces returns g's pieces, with those of the late sidecar instead of pieces that it has or
// will have. It returns nil if there is no late sidecar.
func (s *Store) sidePieces(g *segment) []stored.Piece {
	c := s.late.file.Load()
	if c == nil || !g.converts() {
		return nil
	}
	out := make([]stored.Piece, 0, len(g.pieces))
	add := func(key sideKey, own []stored.Piece) {
		kept := c.pieces[key]
		for k := range own {
			piece := own[k]
			if k < len(kept) {
				if j := c.jobs[kept[k].Ranges[0].Tensor]; j != nil && !j.plain.Load() {
					piece = kept[k]
				}
			}
			out = append(out, piece)
		}
	}
	if g.stack == nil {
		add(sideKey{g.param, -1}, g.pieces)
		return out
	}
	for i, p := range g.stack.params {
		add(sideKey{p, g.expert}, g.pieces[g.firstPiece[i]:g.firstPiece[i+1]])
	}
	return out
}

// beginLate begins the late sidecar if a converted segment does not fit. If that is impossible,
// it logs that once. It must be called between units.
func (s *Store) beginLate() {
	l := &s.late
	if !l.wanted.Load() {
		return
	}
	if l.state.Load() == latePossible {
		if err := s.openLate(); err == nil {
			return
		} else {
			l.state.Store(lateImpossible)
			s.cannotKeep(&SidecarError{Dir: filepath.Dir(l.final), Err: err})
		}
	}
	if s.quantizer.Converter != nil && s.folder == "" && s.binding.Checkpoint().Dir() != "" {
		s.cannotKeep(errors.New("no cache folder for converted weights: use --cache-dir, a larger --max-memory, or the weights as stored"))
	}
}

// cannotKeep logs once why weights that do not fit are converted in each pass.
func (s *Store) cannotKeep(why error) {
	if s.late.warned.Swap(true) {
		return
	}
	if s.quantizer.exact() {
		slog.Warn("weights that do not stay in memory are read as stored", "reason", why)
		return
	}
	slog.Warn("weights that do not stay in memory are converted again in each pass, which is several times slower than reading converted ones", "reason", why)
}

// openLate opens the late sidecar: one that another process has completed or begun, or a new one.
func (s *Store) openLate() error {
	l := &s.late
	list, _, err := s.sidecarMatrices(l.units)
	if err != nil {
		return err
	}
	c := s.newSidecar(l.final)
	if c.checkpoint, err = openSidecar(l.final, l.key); err != nil && !c.resume(l.key, list) {
		if err := hasRoom(c.folder, list, spare); err != nil {
			return err
		}
		if c.writing, c.checkpoint, err = beginSidecar(c.folder, c.final, l.key, list); err != nil {
			return err
		}
		slog.Info("writing converted weights to a file, because not all of them stay in memory", "file", l.final)
	}
	return s.useLate(c, list)
}

// useLate makes an open file the late sidecar.
func (s *Store) useLate(c *sidecar, list []sideMatrix) error {
	c.late = true
	if c.writing != nil {
		c.writing.intercept = s.mover.InterceptWrite
	}
	err := c.bind(list, s.quantizer)
	if err == nil {
		err = s.mapSidecar(c)
	}
	if err != nil {
		c.close()
		return err
	}
	s.late.file.Store(c)
	s.late.state.Store(lateThere)
	s.finishLate(c)
	return nil
}

// spare is the minimum of free disk space that a late sidecar leaves, unless a twentieth of the
// disk is less.
const spare = 1 << 30

// hasRoom returns an error if a new file in folder would leave less than spare bytes free, or
// less than a twentieth of the disk if that is less.
func hasRoom(folder string, list []sideMatrix, spare int64) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	all, free, err := hostmem.DiskSpace(folder)
	if err != nil {
		return nil // free space is unknown; beginSidecar tries
	}
	size := 4 * sumCount(list)
	for i := range list {
		size += list[i].size
	}
	if reserve := min(all/20, spare); size+reserve > free {
		return fmt.Errorf("%d MiB are free, want %d MiB for the weights and %d MiB to spare: %w", free>>20, size>>20, reserve>>20, syscall.ENOSPC)
	}
	return nil
}

// finishLate completes the late sidecar in the background if Warm was called.
func (s *Store) finishLate(c *sidecar) {
	w := &s.warm
	w.mu.Lock()
	ctx, done := w.ctx, w.done
	w.mu.Unlock()
	if ctx == nil {
		return // Warm does it, if it is called
	}
	w.afterwards.Go(func() {
		<-done
		if err := s.finishSidecar(ctx, c, s.whenQuiet(quietFor, busyWaits)); err != nil && ctx.Err() == nil {
			slog.Warn("converted weights were not all written", "file", c.final, "reason", err)
		}
	})
}

// keepConverted writes the converted part of g to the late sidecar, and returns its pieces there,
// or nil if there is no late sidecar.
func (s *Store) keepConverted(ctx context.Context, g *segment) ([]stored.Piece, error) {
	side := s.sidePieces(g)
	for k := range side {
		r := side[k].Ranges[0]
		j := s.late.file.Load().jobs[r.Tensor]
		if j == nil || j.done.Load() {
			continue
		}
		if _, err := s.ensure(ctx, sideRange{sideJob: j, begin: r.Begin, size: r.Size}, nil); err != nil {
			return nil, err
		}
	}
	return side, nil
}

// copyKept copies a piece of the late sidecar. It reports whether the file has it.
func (s *Store) copyKept(to []byte, side []stored.Piece, k int) bool {
	if side == nil {
		return false
	}
	r := side[k].Ranges[0]
	j := s.late.file.Load().jobs[r.Tensor]
	if j == nil || !j.kept() || s.copyRange(to, r) != nil {
		return false
	}
	evict(&side[k])
	return true
}

// convertUnwritable converts the rows of a matrix that could not be written to the file into memory
// of made, and points part to it.
func (s *Store) convertUnwritable(j *sideJob, r stored.Range, part *backend.Part, made *[]*hostmem.Block) error {
	block, err := s.arena.Alloc(hostmem.Staging, int(r.Size))
	if err != nil {
		return err
	}
	*made = append(*made, block)
	each := max(j.rowBytes, 1)
	to := block.Bytes()[:r.Size]
	s.quantizer.mu.Lock()
	defer s.quantizer.mu.Unlock()
	line := r.Size / int64(max(r.Lines, 1))
	for i := range int64(max(r.Lines, 1)) {
		err := s.quantizer.convertRows(context.Background(), to[i*line:][:line], j, int((r.Begin+i*r.Pitch)/each), int(line/each))
		if err != nil {
			return fmt.Errorf("residency: converting %s: %w", j.name, err)
		}
	}
	stored.Set(part, 0, to)
	return nil
}

// copyPlain points part to rows of a matrix that is used as stored, for the band r of the
// converted file. It copies them to memory of made.
func (s *Store) copyPlain(j *sideJob, r stored.Range, part *backend.Part, made *[]*hostmem.Block) error {
	source, each := j.source.Ranges[0], max(j.rowBytes, 1)
	elem := source.Size / int64(max(j.matrixRows, 1)) // bytes per row as stored
	line := r.Size / int64(r.Lines) / each * elem
	block, err := s.arena.Alloc(hostmem.Staging, int(line)*r.Lines)
	if err != nil {
		return err
	}
	*made = append(*made, block)
	for i := range int64(r.Lines) {
		row := (r.Begin + i*r.Pitch) / each
		from := stored.Range{Tensor: source.Tensor, Begin: source.Begin + row*elem, Size: line}
		if err := s.copyRange(block.Bytes()[i*line:], from); err != nil {
			return err
		}
	}
	stored.Set(part, 0, block.Bytes()[:line*int64(r.Lines)])
	return nil
}

// freeBlocks frees blocks, which are released nowhere else.
func freeBlocks(list *[]*hostmem.Block) {
	for _, b := range *list {
		_ = b.Release()
	}
	*list = (*list)[:0]
}
