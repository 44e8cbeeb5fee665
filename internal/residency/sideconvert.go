package residency

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/stored"
)

// ensurePieces makes sure that the sidecar has the matrices of pieces; see ensure.
func (s *Store) ensurePieces(ctx context.Context, pieces []stored.Piece) error {
	if s.sidecar == nil {
		return nil
	}
	for i := range pieces {
		for _, r := range pieces[i].Ranges {
			if j := s.sidecar.jobs[r.Tensor]; j != nil && !j.done.Load() {
				if _, err := s.ensure(ctx, sideRange{sideJob: j, begin: r.Begin, size: r.Size}, nil); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// ensure makes sure that the file has r. It converts r's matrix into the file unless an earlier
// start has done so. It verifies bytes of an earlier start, those in read, or in the mapping if
// read is nil. It converts damaged rows again, and reports whether there were any.
//
// ensure is safe for concurrent use; one goroutine at a time converts.
func (s *Store) ensure(ctx context.Context, r sideRange, read []byte) (repaired bool, err error) {
	c, j := s.side(), r.sideJob
	if c.sums != nil {
		return s.verify(ctx, r, read)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if j.done.Load() {
		return false, nil
	}
	if c.begun != nil && c.completedBefore(j) {
		c.markDone(j)
		return false, nil
	}
	if err := s.convertTiles(ctx, j, 0, j.count); err != nil {
		return false, err
	}
	switch {
	case j.unwritable.Load():
		s.displacing.changed.Store(true) // the next pass converts it in memory
	case !j.plain.Load():
		evict(&j.source)
	case s.restream:
		s.displacing.changed.Store(true) // the next pass streams it as stored
	}
	c.markDone(j)
	return false, nil
}

// convertTiles converts tiles [first, end) of a matrix into the file, with their checksums. If
// the file cannot be written, convertTiles abandons it: weights of an exact format are then used
// as stored, others are converted again in each pass. The next start continues the file. The
// caller holds mu.
func (s *Store) convertTiles(ctx context.Context, j *sideJob, first, end int) error {
	c := s.side()
	if c.unwritten.Load() {
		j.giveUp(c.exact)
		return nil
	}
	err := s.writeTiles(ctx, c, j, first, end)
	var unwritten *SidecarError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &unwritten) && c.exact:
		slog.Warn("weights on the disk are used as stored, because coded ones cannot be written", "weights", j.name, "reason", err)
	case errors.As(err, &unwritten):
		s.cannotKeep(err)
	default:
		return fmt.Errorf("residency: converting %s: %w", j.name, err)
	}
	c.unwritten.Store(true)
	j.giveUp(c.exact)
	return nil
}

// writeTiles converts tiles [first, end) of a matrix and writes them and their checksums. It marks the
// matrix as plain if an exact format does not make it smaller.
func (s *Store) writeTiles(ctx context.Context, c *sidecar, j *sideJob, first, end int) error {
	s.quantizer.mu.Lock()
	defer s.quantizer.mu.Unlock()
	sums, err := s.quantizer.convertTo(ctx, c.writing, j, first, end)
	if errors.Is(err, backend.ErrIncompressible) {
		slog.Debug("weights are used as stored", "weights", j.name, "reason", err)
		first, sums, err = 0, slices.Repeat([]uint32{plainSum}, j.count), nil
		j.plain.Store(true)
	}
	if err != nil {
		return err
	}
	return c.writing.writeSums(j.firstSum+first, sums)
}

// markDone records that a matrix is done. After the last matrix it renames the file. The caller
// holds mu.
func (c *sidecar) markDone(j *sideJob) {
	j.done.Store(true)
	if c.remaining--; c.remaining <= 0 && !c.unwritten.Load() {
		c.err = c.writing.finish()
		c.written()
	}
}

// completedBefore reports whether the process that began the file completed a matrix. If that
// process found the matrix incompressible, completedBefore marks it as plain.
func (c *sidecar) completedBefore(j *sideJob) bool {
	sums, err := c.begun.Bytes()
	if err != nil {
		return false
	}
	for k := range j.count {
		if binary.LittleEndian.Uint32(sums[4*(j.firstSum+k):]) == 0 { // not written; one tile in four billion has this checksum by chance
			return false
		}
	}
	if c.exact && j.markedPlain(sums) {
		j.plain.Store(true)
		return true
	}
	data, err := j.target.Bytes()
	return err == nil && j.firstDamaged(data, sums, 0) < 0
}

// isUnwritten reports whether the file can no longer be written.
func (c *sidecar) isUnwritten() bool {
	return c != nil && c.unwritten.Load()
}

// finishSidecar converts the matrices that no pass has needed yet, for the next start. It calls
// pace before each if it is not nil.
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
		if _, err := s.ensure(ctx, sideRange{sideJob: j, size: j.target.Size}, nil); err != nil {
			return err
		}
	}
	for _, j := range c.order { // again, because the system maps whole huge pages, with parts of adjacent matrices
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

// convertedBytes is the size of the parts in which a matrix is converted and written.
const convertedBytes = 8 << 20

// convertTo converts tiles [first, end) of a matrix, some rows at a time, and writes them. It
// returns their checksums.
func (q *quantizer) convertTo(ctx context.Context, to *sideFile, j *sideJob, first, end int) (sums []uint32, err error) {
	if _, _, err := q.converted(&j.source); err != nil {
		return nil, err
	}
	_, offset, _ := j.target.Location()
	group := j.tileRows * int(max(convertedBytes/max(j.tileBytes(), 1), 1))
	last := min(end*j.tileRows, j.matrixRows)
	buffer := make([]byte, int64(min(group, max(last-first*j.tileRows, 0)))*j.rowBytes)
	for row := first * j.tileRows; row < last; row += group {
		n := min(group, last-row)
		rows := buffer[:int64(n)*j.rowBytes]
		if err := q.convertRows(ctx, rows, j, row, n); err != nil {
			return nil, err
		}
		sums = append(sums, j.checksums(rows)...)
		if err := to.write(rows, offset+int64(row)*j.rowBytes); err != nil {
			return nil, err
		}
	}
	return sums, nil
}

// convertRows converts n rows of a matrix from the given row on. The rows are whole tiles.
func (q *quantizer) convertRows(ctx context.Context, to []byte, j *sideJob, row, n int) error {
	p := &j.source
	whole, elem := p.Ranges[0], p.Ranges[0].Size/int64(max(j.matrixRows, 1)) // bytes per row as stored
	part := backend.Part{Matrix: p.Part.Matrix}
	part.Dims[0] = n
	r := stored.Range{Tensor: whole.Tensor, Begin: whole.Begin + int64(row)*elem, Size: int64(n) * elem}
	return q.convert(ctx, to, r, &part)
}
