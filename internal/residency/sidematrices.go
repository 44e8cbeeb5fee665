package residency

import (
	"fmt"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/internal/stored"
	"github.com/heftai/heft/meta"
)

// A sideMatrix is a matrix to convert, with its position in the file.
type sideMatrix struct {
	tiles
	key    sideKey
	path   string // of the device map
	name   string // of its tensor in the file
	source stored.Piece
	size   int64 // bytes after the conversion
}

// A sideKey identifies a parameter, or one expert's slab of it.
type sideKey struct {
	param  *meta.Param
	expert int // -1 for the whole parameter
}

// sidecarMatrices returns the matrices to convert, in the order of use, and reports whether some
// of them are on the disk tier. Experts of a unit precede its other parameters.
func (s *Store) sidecarMatrices(units []Unit) (list []sideMatrix, onDisk bool, err error) {
	m := matrixLister{store: s, seen: map[*meta.Param]bool{}}
	experts := map[*meta.Module]bool{}
	for _, u := range units {
		for _, n := range u.Experts {
			experts[n.Module] = true
			for _, p := range n.Module.Params {
				if p = p.Resolve(); m.visit(p) {
					for e := range s.own(n.Module, p.Shape[0]) {
						m.add(p, expertKey(n.Path, e), e, s.sourcePieces(p, e))
					}
				}
			}
		}
		for _, n := range u.Modules {
			for _, module := range n.Module.Walk() {
				if experts[module] || module.Kind == meta.KindEmbedding {
					continue
				}
				for _, p := range module.Params {
					if p = p.Resolve(); m.visit(p) {
						var pieces []stored.Piece
						for _, part := range s.binding.Tensors(p) {
							pieces = append(pieces, stored.New(part))
						}
						m.add(p, s.paths[p], -1, pieces)
					}
				}
			}
		}
	}
	return m.list, m.onDisk, m.err
}

// A matrixLister collects the matrices of a sidecar.
type matrixLister struct {
	store  *Store
	seen   map[*meta.Param]bool
	list   []sideMatrix
	sums   int // checksums of list
	onDisk bool
	err    error // the first error; nothing is added after it
}

// visit reports whether p is converted and was not visited before.
func (m *matrixLister) visit(p *meta.Param) bool {
	if m.seen[p] || !m.store.quantizer.selects(p) {
		return false
	}
	m.seen[p] = true
	return true
}

// add appends the pieces of p, or of one of its experts. path is their path in the device map.
func (m *matrixLister) add(p *meta.Param, path string, expert int, pieces []stored.Piece) {
	if m.err != nil {
		return
	}
	q := m.store.quantizer
	device, _ := m.store.devices.Device(path)
	m.onDisk = m.onDisk || device == devicemap.Disk
	for k := range pieces {
		_, size, err := q.converted(&pieces[k])
		if err != nil {
			m.err = fmt.Errorf("residency: %s: %w", path, err)
			return
		}
		t := newTiles(pieces[k].Part.Dims[0], q.RowGroup(), size, m.sums)
		m.sums += t.count
		m.list = append(m.list, sideMatrix{
			tiles: t, key: sideKey{p, expert}, path: path, name: fmt.Sprintf("%s/%s/%d", path, p.Name, k), source: pieces[k], size: size,
		})
	}
}
