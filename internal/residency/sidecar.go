package residency

import (
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
	"github.com/heftai/heft/internal/stored"
	"github.com/heftai/heft/loader"
)

// A sidecar is a file of converted weights. The disk tier streams it, and the cpu tier maps it,
// instead of the checkpoint.
//
// sidefile.go has its format: a safetensors file of bytes whose layout is known before any weight
// is read. sidematrices.go lists the matrices in it. sideconvert.go creates it: the first start
// writes a temporary file, each matrix when it is first needed and the others in the background,
// and renames it when it is complete. Later starts use the complete file: sideverify.go verifies
// the checksum of each tile of rows before its first use, and converts damaged tiles again.
type sidecar struct {
	folder     string
	final      string // the name of the complete file
	checkpoint *loader.Checkpoint
	pieces     map[sideKey][]stored.Piece
	jobs       map[*loader.Tensor]*sideJob
	order      []*sideJob     // jobs in the order of use
	sums       *loader.Tensor // checksums of a complete file; nil during the first start
	begun      *loader.Tensor // checksums in a file that an earlier process began; otherwise nil

	mu        sync.Mutex // guards the fields below; one conversion at a time, with all threads
	writing   *sideFile  // nil if nothing was written so far
	remaining int        // matrices that the first start has to write
	err       error      // of renaming the file

	writes    atomic.Uint32 // odd while this process writes the file
	unwritten atomic.Bool   // the file can no longer be written
	late      bool          // the plan has all weights in memory: see the type late
	exact     bool          // the format is lossless
	somePlain bool          // matrices of a complete file are used as stored
}

// holds reports whether t is a tensor of the sidecar rather than of the checkpoint.
func (c *sidecar) holds(t *loader.Tensor) bool { return c != nil && c.jobs[t] != nil }

// A SidecarError reports that converted weights cannot be stored in Dir.
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

// startSidecar opens the file of converted weights of units. If there is none and some of them
// are on the disk tier, it begins one. Otherwise s.sidecar stays nil.
func (s *Store) startSidecar(units []Unit, o *Options) error {
	folder := o.SidecarDir
	if folder == "" {
		return nil
	}
	defer atomicfile.RemoveStale(folder) // files of killed processes; one that is continued is locked by then
	if s.quantizer.Converter == nil {
		return nil
	}
	list, onDisk, err := s.sidecarMatrices(units)
	if err != nil || len(list) == 0 {
		return err
	}
	key, err := sideFingerprint(s.binding.Checkpoint(), s.quantizer, list)
	if err != nil {
		return err
	}
	final := filepath.Join(folder, sideName(s.binding.Checkpoint(), s.quantizer.Format()))
	c := s.newSidecar(final)
	if c.checkpoint, err = openSidecar(final, key); err != nil {
		if !onDisk {
			if o.NoLateFile {
				return nil
			}
			return s.allowLate(units, key, final, list)
		}
		if err := c.begin(key, list, err); err != nil && c.exact {
			slog.Warn("weights on the disk are used as stored, because coded ones cannot be kept", "folder", folder, "reason", err)
			s.streamAsStored(list)
			return nil
		} else if err != nil {
			return &SidecarError{Dir: folder, Err: err}
		}
	}
	s.sidecar = c
	if c.writing != nil {
		c.writing.intercept = s.mover.InterceptWrite
	}
	if err := c.bind(list, s.quantizer); err != nil {
		return err
	}
	return s.mapSidecar(c)
}

func (s *Store) newSidecar(final string) *sidecar {
	return &sidecar{folder: filepath.Dir(final), final: final, exact: s.quantizer.exact()}
}

// begin continues the file that an earlier process did not complete, or begins a new one. why is
// the reason why there is no complete file; begin logs it if it replaces a file.
func (c *sidecar) begin(key string, list []sideMatrix, why error) (err error) {
	if c.resume(key, list) {
		return nil
	}
	if !c.exact { // stored weights are used where the file ends
		if err := hasRoom(c.folder, list, 0); err != nil {
			return err
		}
	}
	if _, err := os.Stat(c.final); err == nil {
		slog.Warn("converting the weights again", "file", c.final, "reason", why)
	}
	c.writing, c.checkpoint, err = beginSidecar(c.folder, c.final, key, list)
	return err
}

// resume continues the file that an earlier process did not complete, if there is one.
func (c *sidecar) resume(key string, list []sideMatrix) bool {
	c.remaining = len(list)
	if c.writing, c.checkpoint = resumeSidecar(c.final, key, list); c.writing == nil {
		return false
	}
	slog.Info("continuing the conversion of weights that an earlier process began", "file", c.final)
	c.begun, _ = c.checkpoint.Lookup(sideSums)
	return true
}

// streamAsStored excludes matrices of the disk tier from conversion, and stacks with an expert
// there.
func (s *Store) streamAsStored(list []sideMatrix) {
	for i := range list {
		p := list[i].key.param
		if device, _ := s.devices.Device(list[i].path); device == devicemap.Disk {
			delete(s.quantizer.bytes, p)
		}
	}
}

// mapSidecar opens and maps the file while it still has its temporary name.
func (s *Store) mapSidecar(c *sidecar) error {
	t := c.order[0].target
	if _, err := s.files.get(t.File.Path, nil); err != nil {
		return &SidecarError{Dir: c.folder, Err: err}
	}
	_, err := t.Bytes()
	return err
}

// bind fills pieces and jobs: pieces of the file's tensors, or of the checkpoint's for matrices that the
// file marks as plain.
func (c *sidecar) bind(list []sideMatrix, q *quantizer) error {
	c.pieces, c.jobs = map[sideKey][]stored.Piece{}, map[*loader.Tensor]*sideJob{}
	if c.writing != nil {
		c.writes.Store(1)
	}
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

// close closes the file. It keeps an incomplete file for the next start if the file has a
// converted matrix, and removes it otherwise.
func (c *sidecar) close() {
	if c == nil {
		return
	}
	switch {
	case c.writing == nil:
	case slices.ContainsFunc(c.order, func(j *sideJob) bool { return j.done.Load() }):
		c.writing.keep()
	default:
		c.writing.abandon()
	}
	if c.checkpoint != nil {
		_ = c.checkpoint.Close() // opened for reading
	}
}

var errStale = errors.New("the file belongs to another version of the checkpoint or of Heft")
