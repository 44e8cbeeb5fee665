package policy

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
)

// A Trace is a recorded routing: what each layer of each pass requested.
type Trace struct {
	Layers []Layer
	Steps  []Step
	Curve  []Point // in ascending order of share, set by Measure
}

// A Step is one request.
type Step struct {
	Layer    int
	Segments []int32
}

// A Recorder records requests into memory of a fixed size. When it is full, it drops further
// requests. It is not safe for concurrent use.
type Recorder struct {
	layers   []Layer
	steps    []recorded
	segments []int32
	full     bool
}

type recorded struct{ layer, end int32 }

// NewRecorder returns a recorder for up to the given number of requested segments.
func NewRecorder(layers []Layer, segments int) *Recorder {
	return &Recorder{layers: layers, steps: make([]recorded, 0, segments), segments: make([]int32, 0, segments)}
}

// Record adds a request. It does not allocate.
func (r *Recorder) Record(layer int, segments []int32) {
	if r.full = r.full || len(r.steps) == cap(r.steps) || len(r.segments)+len(segments) > cap(r.segments); r.full {
		return // the trace has no gaps
	}
	r.segments = append(r.segments, segments...)
	r.steps = append(r.steps, recorded{int32(layer), int32(len(r.segments))})
}

// Full reports whether the recorder has dropped a request.
func (r *Recorder) Full() bool { return r.full }

// Reset removes what was recorded.
func (r *Recorder) Reset() { r.steps, r.segments, r.full = r.steps[:0], r.segments[:0], false }

// Trace returns what was recorded. It shares the recorder's memory.
func (r *Recorder) Trace() *Trace {
	t := &Trace{Layers: r.layers}
	begin := int32(0)
	for _, s := range r.steps {
		t.Steps = append(t.Steps, Step{int(s.layer), r.segments[begin:s.end]})
		begin = s.end
	}
	return t
}

// The file format of a trace: a line that names the format, a line of JSON with the layers, the
// steps as unsigned varints (layer, number of segments, segments), and the CRC-32C of all
// preceding bytes.
const (
	form = "heft routing 1\n"
	// MaxBytes is the maximum size of a trace file.
	MaxBytes = 64 << 20
)

// Bounds of the number of layers, and of the segments in a layer.
const (
	maxLayers   = 1 << 12
	maxSegments = 1 << 16
)

type header struct {
	Layers []fileLayer `json:"layers"`
	Steps  int         `json:"steps"`
	Curve  []Point     `json:"curve"`
}

type fileLayer struct {
	Experts int   `json:"experts"`
	Bytes   int64 `json:"bytes"` // of one expert
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Encode returns the contents of a trace file.
func (t *Trace) Encode() []byte {
	h := header{Steps: len(t.Steps), Curve: t.Curve}
	for _, l := range t.Layers {
		h.Layers = append(h.Layers, fileLayer{l.Segments, l.Size})
	}
	line, _ := json.Marshal(h) // numbers only
	b := append([]byte(form), line...)
	b = append(b, '\n')
	for _, s := range t.Steps {
		b = binary.AppendUvarint(b, uint64(s.Layer))
		b = binary.AppendUvarint(b, uint64(len(s.Segments)))
		for _, e := range s.Segments {
			b = binary.AppendUvarint(b, uint64(e))
		}
	}
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// Decode parses the result of Encode. It returns an error if anything is damaged.
func Decode(b []byte) (*Trace, error) {
	rest, ok := bytes.CutPrefix(b, []byte(form))
	if !ok {
		return nil, errors.New("policy: the first line is not that of a routing trace")
	}
	if n := len(b) - 4; n < len(form) || crc32.Checksum(b[:n], castagnoli) != binary.LittleEndian.Uint32(b[n:]) {
		return nil, errors.New("policy: the checksum of the routing trace is wrong")
	}
	line, rest, _ := bytes.Cut(rest[:len(rest)-4], []byte("\n"))
	var h header
	if err := json.Unmarshal(line, &h); err != nil {
		return nil, fmt.Errorf("policy: the header of the routing trace: %w", err)
	}
	t := &Trace{}
	if len(h.Layers) == 0 || len(h.Layers) > maxLayers || h.Steps < 0 || h.Steps > len(rest) {
		return nil, fmt.Errorf("policy: the routing trace has %d layers and %d steps in %d bytes", len(h.Layers), h.Steps, len(rest))
	}
	for i, l := range h.Layers {
		if l.Experts < 1 || l.Experts > maxSegments || l.Bytes < 1 {
			return nil, fmt.Errorf("policy: layer %d of the routing trace has %d experts of %d bytes", i, l.Experts, l.Bytes)
		}
		t.Layers = append(t.Layers, Layer{l.Experts, l.Bytes})
	}
	t.Curve = h.Curve
	for i, p := range t.Curve {
		if p.Hits < 0 || p.Hits > 1 || p.Share > 1 || p.Share <= 0 || i > 0 && p.Share <= t.Curve[i-1].Share {
			return nil, fmt.Errorf("policy: point %d of the routing trace's curve is %v", i, p)
		}
	}
	d := decoder{rest: rest}
	for i := range h.Steps {
		s, ok := d.step(t.Layers)
		if !ok {
			return nil, fmt.Errorf("policy: step %d of the routing trace has a layer or an expert that does not exist", i)
		}
		t.Steps = append(t.Steps, s)
	}
	if len(d.rest) > 0 {
		return nil, fmt.Errorf("policy: %d bytes after the routing trace's last step", len(d.rest))
	}
	return t, nil
}

type decoder struct{ rest []byte }

// number reads a number below limit. It returns -1 if there is none.
func (d *decoder) number(limit int) int {
	v, n := binary.Uvarint(d.rest)
	if n <= 0 || v >= uint64(limit) {
		return -1
	}
	d.rest = d.rest[n:]
	return int(v)
}

// step reads a step. Its segments must ascend.
func (d *decoder) step(layers []Layer) (Step, bool) {
	layer := d.number(len(layers))
	if layer < 0 {
		return Step{}, false
	}
	count := layers[layer].Segments
	n := d.number(min(count, len(d.rest)) + 1)
	if n < 0 {
		return Step{}, false
	}
	s := Step{Layer: layer, Segments: make([]int32, n)}
	last := -1
	for i := range s.Segments {
		e := d.number(count)
		if e <= last {
			return Step{}, false
		}
		s.Segments[i], last = int32(e), e
	}
	return s, true
}
