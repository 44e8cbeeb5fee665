package residency

import (
	"context"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/stored"
)

// convertedBytes is the size of the parts in which a matrix is converted and written.
const convertedBytes = 8 << 20

// convertTo converts tiles [first, end) of a matrix, some rows at a time, and writes them. It returns their
// checksums.
func (q *quantizer) convertTo(ctx context.Context, to *sideFile, j *sideJob, first, end int) (sums []uint32, err error) {
	if _, _, err := q.converted(&j.source); err != nil {
		return nil, err
	}
	_, offset, _ := j.target.Location()
	group := j.rows * int(max(convertedBytes/max(j.bytes(), 1), 1))
	last := min(end*j.rows, j.all)
	buffer := make([]byte, int64(min(group, max(last-first*j.rows, 0)))*j.each)
	for row := first * j.rows; row < last; row += group {
		n := min(group, last-row)
		rows := buffer[:int64(n)*j.each]
		if err := q.convertRows(ctx, rows, j, row, n); err != nil {
			return nil, err
		}
		sums = append(sums, j.sums(rows)...)
		if err := to.write(rows, offset+int64(row)*j.each); err != nil {
			return nil, err
		}
	}
	return sums, nil
}

// convertRows converts n rows of a matrix, whole tiles of it, from a row on.
func (q *quantizer) convertRows(ctx context.Context, to []byte, j *sideJob, row, n int) error {
	p := &j.source
	whole, elem := p.Ranges[0], p.Ranges[0].Size/int64(max(j.all, 1)) // bytes of a row as stored
	part := backend.Part{Matrix: p.Part.Matrix}
	part.Dims[0] = n
	r := stored.Range{Tensor: whole.Tensor, Begin: whole.Begin + int64(row)*elem, Size: int64(n) * elem}
	return q.convert(ctx, to, r, &part)
}
