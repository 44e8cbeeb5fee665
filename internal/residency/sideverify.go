package residency

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"github.com/heftai/heft/loader"
)

// verify compares r's bytes with their checksums: the bytes in read, or in the mapping if read is
// nil. It converts damaged rows again, and reports whether there were any.
func (s *Store) verify(ctx context.Context, r sideRange, read []byte) (repaired bool, err error) {
	for i := range max(r.lines, 1) {
		line := r.line(i)
		var lineRead []byte
		if read != nil {
			lineRead = read[int64(i)*line.size:][:line.size]
		}
		again, err := s.verifyLine(ctx, line, lineRead)
		if err != nil {
			return false, err
		}
		repaired = repaired || again
	}
	return repaired, nil
}

// verifyLine is verify for a range without lines.
func (s *Store) verifyLine(ctx context.Context, r sideRange, read []byte) (repaired bool, err error) {
	c, j := s.side(), r.sideJob
	first, end := j.covering(r.begin, r.size)
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
	if j.firstDamaged(read, sums, first) < 0 {
		j.markIntact(first, end)
		return false, nil
	}
	if err := s.repair(ctx, c, j, first, end); err != nil {
		return false, err
	}
	return true, nil
}

// repair converts damaged tiles [first, end) of a matrix again, into the complete file.
func (s *Store) repair(ctx context.Context, c *sidecar, j *sideJob, first, end int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	slog.Warn("converting a damaged matrix again", "file", c.final, "matrix", j.name)
	if c.writing == nil {
		f, err := os.OpenFile(c.final, os.O_RDWR, 0)
		if err != nil {
			return &SidecarError{Dir: c.folder, Err: fmt.Errorf("%s is damaged: %w", j.name, err)}
		}
		_, sums, _ := c.sums.Location()
		c.writing = &sideFile{f: f, sums: sums, intercept: s.mover.InterceptWrite}
	}
	if err := c.unchanged(); err != nil {
		return err
	}
	c.writes.Add(1)
	defer c.written()
	if err := s.convertTiles(ctx, j, first, end); err != nil {
		return err
	}
	j.markIntact(first, end)
	if j.plain.Load() {
		j.done.Store(true)
	}
	c.err = c.writing.finish()
	return nil
}

// SidecarUnchanged returns an error if another process wrote to the file of converted weights, or
// truncated it, since this process opened or wrote it. It detects no change while this process
// writes the file. Without an error it does not allocate.
func (s *Store) SidecarUnchanged() error {
	c := s.side()
	if c == nil {
		return nil
	}
	return c.unchanged()
}

func (c *sidecar) unchanged() error {
	writes := c.writes.Load()
	if writes%2 == 1 {
		return nil
	}
	err := c.file().Unchanged()
	if err != nil && c.writes.Load() != writes {
		return nil // this process has written to it
	}
	return err
}

// written records the present state of the file as written by this process.
func (c *sidecar) written() {
	c.file().Accept()
	if c.writes.Load()%2 == 1 {
		c.writes.Add(1)
	}
}

func (c *sidecar) file() *loader.File { return c.order[0].target.File }
