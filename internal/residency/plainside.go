package residency

import (
	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/hostmem"
	"github.com/heftai/heft/internal/stored"
)

// plainParts returns parts of pieces. Matrices that this start has marked as plain are taken from
// the checkpoint's mapping; the next start reads them as stored. Matrices that could not be
// written to a late file are converted. Memory for both is added to made. plainParts returns nil
// if that fails; Err then returns the error. It allocates only for such matrices.
func (s *Store) plainParts(pieces []stored.Piece, parts []backend.Part, made *[]*hostmem.Block) []backend.Part {
	c := s.side()
	if c == nil {
		return parts
	}
	for k := range pieces {
		j := c.jobs[pieces[k].Ranges[0].Tensor]
		if j != nil && j.unwritable.Load() {
			if s.failed = s.convertUnwritable(j, pieces[k].Ranges[0], &parts[k], made); s.failed != nil {
				return nil
			}
			continue
		}
		if j == nil || !j.plain.Load() {
			continue
		}
		source := j.source
		if r := pieces[k].Ranges[0]; r.Lines > 0 {
			part := source.NewPart()
			part.Dims[0], part.Into = pieces[k].Part.Dims[0], pieces[k].Part.Into
			if s.failed = s.copyPlain(j, r, &part, made); s.failed != nil {
				return nil
			}
			parts[k] = part
			continue
		}
		if p := &pieces[k]; p.Part.Dims[0] != source.Part.Dims[0] { // a band
			begin := p.Part.Into.Begin - source.Part.Into.Begin
			source, _ = source.Rows(begin, begin+p.Part.Dims[0]) // rows that can be coded can be split
		}
		part := source.NewPart()
		if err := source.InPlace(&part); err != nil {
			s.failed = err
			return nil
		}
		parts[k] = part
	}
	return parts
}

// streamed returns the piece from which p streams: the one as stored, if this start has marked it
// as plain.
func (c *sidecar) streamed(p *stored.Piece) *stored.Piece {
	if c != nil {
		if j := c.jobs[p.Ranges[0].Tensor]; j != nil && j.plain.Load() {
			return &j.source
		}
	}
	return p
}
