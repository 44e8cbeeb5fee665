package residency

import (
	"sync/atomic"

	"github.com/heftai/heft/internal/stored"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
)

// A sideJob is the conversion, or the verification, of one matrix.
type sideJob struct {
	tiles
	name       string
	param      *meta.Param
	source     stored.Piece
	target     *loader.Tensor
	done       atomic.Bool     // the whole matrix is in the file and intact
	plain      atomic.Bool     // the matrix is used as stored
	unwritable atomic.Bool     // the matrix cannot be written: each pass converts it
	verified   []atomic.Uint32 // bits of tiles that are intact; nil during the first start
	left       atomic.Int32    // tiles that are not verified
}

// giveUp records that the matrix cannot be written to the file.
func (j *sideJob) giveUp(exact bool) {
	if exact {
		j.plain.Store(true)
	} else {
		j.unwritable.Store(true)
	}
}

// intact reports whether tiles [first, end) are known to be intact.
func (j *sideJob) intact(first, end int) bool {
	if j.done.Load() {
		return true
	}
	for k := first; k < end; k++ {
		if j.verified == nil || j.verified[k/32].Load()>>(k%32)&1 == 0 {
			return false
		}
	}
	return true
}

// markIntact records that tiles [first, end) are intact.
func (j *sideJob) markIntact(first, end int) {
	if j.verified == nil {
		return
	}
	for k := first; k < end; k++ {
		bit := uint32(1) << (k % 32)
		if j.verified[k/32].Or(bit)&bit == 0 && j.left.Add(-1) == 0 {
			j.done.Store(true)
		}
	}
}

// A sideRange is the bytes of a matrix of the sidecar that a load reads. It is empty if the job is nil.
type sideRange struct {
	*sideJob
	begin, size int64
	lines       int   // number of equal parts of the range, or 0
	pitch       int64 // bytes from the start of a line to that of the next one
}

// line returns line i of the range. Line 0 of a range without lines is the range.
func (r *sideRange) line(i int) sideRange {
	size := r.size / int64(max(r.lines, 1))
	return sideRange{sideJob: r.sideJob, begin: r.begin + int64(i)*r.pitch, size: size}
}

// ready reports whether the bytes are in the file and intact.
func (r *sideRange) ready() bool {
	if r.sideJob == nil || r.sideJob.done.Load() {
		return true
	}
	for i := range max(r.lines, 1) {
		l := r.line(i)
		if r.verified == nil || !r.intact(r.tiles.covering(l.begin, l.size)) {
			return false
		}
	}
	return true
}

// kept reports whether the file has the matrix.
func (j *sideJob) kept() bool { return j.done.Load() && !j.plain.Load() && !j.unwritable.Load() }
