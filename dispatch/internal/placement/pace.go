package placement

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch/internal/gpus"
	"github.com/heftai/heft/internal/atomicfile"
	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/backend/cpu"
	"github.com/heftai/heft/internal/kernels/tune"
	"github.com/heftai/heft/internal/probe"
	"github.com/heftai/heft/internal/smallfile"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

const (
	paceVersion  = 2
	paceTime     = 30 * time.Millisecond // of each measurement
	paceBytes    = 16 << 20
	paceMostKept = 64 << 10 // bytes of a file
)

// keptPace is the JSON of a file that stores a pace.
type keptPace struct {
	Version int    `json:"version"`
	GPU     string `json:"gpu"`
	pace
}

// Measurements returns the folder for measurements, or "" for none.
func (o *Settings) Measurements() string {
	switch {
	case o.MeasurementsDir == "none" || o.MeasurementsDir == "" && testing.Testing():
		return ""
	case o.MeasurementsDir == "":
		return tune.DefaultFolder()
	}
	return o.MeasurementsDir
}

// pace returns the speeds of the host and of a GPU. It reads those that an earlier process
// measured, or measures them in about a second. It returns the zero value if the GPU cannot be
// measured, and with Settings.Lazy.
func (o *Settings) pace(d devicemap.Device) pace {
	tier := o.GPUs()
	if tier.Pace != nil {
		return pace(*tier.Pace)
	}
	number, _ := d.GPU()
	name := ""
	gpus, _ := tier.List()
	for _, g := range gpus {
		if g.Number == number {
			name = fmt.Sprintf("%s of %d bytes", g.Name, g.MemoryBytes)
		}
	}
	if name == "" {
		return pace{} // a plan for another machine
	}
	file := ""
	if folder := o.Measurements(); folder != "" {
		key := fnv.New64a()
		fmt.Fprintln(key, name, tune.KeyOf(o.Variant, o.Threads), o.Precision) // which the host's products depend on
		file = filepath.Join(folder, fmt.Sprintf("gpu-%x.json", key.Sum64()))
	}
	if kept := readPace(file); kept != nil {
		return *kept
	}
	if o.Lazy {
		return pace{}
	}
	measured, err := o.measurePace(number, tier)
	if err == nil {
		err = keepPace(file, name, measured)
	}
	if err != nil {
		slog.Warn("the speed of the GPU was not measured or not kept", "gpu", number, "error", err)
	}
	return measured
}

// readPace returns the pace in a file, or nil if there is none. A file that cannot be used is
// logged.
func readPace(file string) *pace {
	if file == "" {
		return nil
	}
	data, err := smallfile.Read(file, paceMostKept)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var in keptPace
	if err == nil {
		err = json.Unmarshal(data, &in)
	}
	if err == nil && in.Version != paceVersion {
		return nil // written by another version of Heft
	}
	if err == nil && !(in.Memory > 0 && in.Host > 0 && in.Link > 0 && in.Device > 0) {
		err = fmt.Errorf("got %+v, want rates above 0", in.pace)
	}
	if err != nil {
		slog.Warn("the stored speed of a GPU cannot be used; measuring again", "file", file, "error", err)
		return nil
	}
	return &in.pace
}

func keepPace(file, name string, p pace) error {
	if file == "" {
		return nil
	}
	text, err := json.MarshalIndent(keptPace{paceVersion, name, p}, "", "  ")
	if err == nil {
		err = os.MkdirAll(filepath.Dir(file), 0o755)
	}
	if err == nil {
		err = atomicfile.WriteFile(file, append(text, '\n'))
	}
	if err != nil {
		return fmt.Errorf("dispatch: %w", err)
	}
	return nil
}

// measurePace measures the host and the GPU, with kernels and copies like those of a pass.
func (o *Settings) measurePace(number int, tier gpus.Tier) (p pace, err error) {
	p.Memory, p.Host, err = o.hostRates()
	if err != nil {
		return pace{}, err
	}
	host, err := cpu.New(cpu.Options{Threads: 1, Variant: o.Variant})
	if err != nil {
		return pace{}, err
	}
	defer func() { _ = host.Close() }() // nothing is under way
	b, err := tier.Open(number, host)
	if err != nil {
		return pace{}, err
	}
	defer func() { _ = b.Close() }() // an error was found before
	if p.Link, err = linkRate(b); err == nil {
		p.Device, err = productRate(b)
	}
	if err == nil {
		p.Crossing, err = crossingTime(b)
	}
	if err != nil {
		return pace{}, fmt.Errorf("dispatch: measuring GPU %d: %w", number, err)
	}
	return p, nil
}

// hostRates measures the reads of the host's memory, in bytes per second, and its products with 16
// bits, in multiply-adds per second.
func (o *Settings) hostRates() (memory, products float64, err error) {
	p := probe.Options{Variant: o.Variant, MemoryBytes: 64 << 20, Ledger: o.Ledger}
	if o.Threads > 0 {
		p.Threads = []int{o.Threads}
	}
	r, err := probe.Run(context.Background(), p)
	if err != nil {
		return 0, 0, err
	}
	if n := len(r.Memory); n > 0 {
		memory = r.Memory[n-1].BytesPerSecond
	}
	return memory, r.ComputeFor("bfloat16", o.Precision == PrecisionAuto), nil
}

// linkRate measures the rate of copies to a device, in bytes per second.
func linkRate(b backend.Backend) (float64, error) {
	to, err := b.New(meta.Uint8, paceBytes)
	if err != nil {
		return 0, err
	}
	defer b.Free(to)
	from := tensor.Tensor{DType: meta.Uint8, Rank: 1, Data: make([]byte, paceBytes)}
	from.Dims[0] = paceBytes
	filler, _ := b.(backend.Filler)
	copyOnce := func() error {
		if filler == nil {
			return b.Copy(to, from)
		}
		if err := filler.Fill(to, from.Data, filler.Fence()); err != nil {
			return err
		}
		return b.Sync()
	}
	for range 2 { // the first copy allocates what copies need
		if err := copyOnce(); err != nil {
			return 0, err
		}
	}
	began, n := time.Now(), 0
	for ; n == 0 || time.Since(began) < paceTime; n++ {
		if err := copyOnce(); err != nil {
			return 0, err
		}
	}
	return float64(n) * paceBytes / time.Since(began).Seconds(), nil
}

// crossingTime measures a copy of one row of hidden states to a device and one back. It returns
// seconds per copy.
func crossingTime(b backend.Backend) (float64, error) {
	const width = 4096
	to, err := b.New(meta.Float32, 1, width)
	if err != nil {
		return 0, err
	}
	defer b.Free(to)
	from := tensor.Floats(make([]float32, width), 1, width)
	began, n := time.Now(), 0
	for ; n < 2 || time.Since(began) < paceTime/2; n += 2 {
		if err := b.Copy(to, from); err != nil {
			return 0, err
		}
		if err := b.Copy(from, to); err != nil {
			return 0, err
		}
	}
	return time.Since(began).Seconds() / float64(n), nil
}

// productRate measures the device's products with a bfloat16 matrix, in multiply-adds per second.
// The products take some milliseconds.
func productRate(b backend.Backend) (float64, error) {
	for size, rows := 64, 16; ; size, rows = 2*size, min(2*rows, 256) {
		seconds, err := productTime(b, size, rows)
		if err != nil {
			return 0, err
		}
		if seconds >= paceTime.Seconds()/4 || size >= 4096 {
			return 2 * float64(size) * float64(size) * float64(rows) / seconds, nil
		}
	}
}

// productTime measures one product of the given number of rows with a square matrix, after a
// warm-up.
func productTime(b backend.Backend, size, rows int) (float64, error) {
	var made [3]tensor.Tensor
	for i, shape := range [3][2]int{{size, size}, {rows, size}, {rows, size}} {
		d := meta.Float32
		if i == 0 {
			d = meta.BFloat16
		}
		t, err := b.New(d, shape[0], shape[1])
		if err != nil {
			return 0, err
		}
		defer b.Free(t)
		made[i] = t
	}
	began := time.Now()
	for range 2 {
		began = time.Now()
		b.LinearRounded(made[1], made[2], backend.Matrix{Tensor: made[0]}, tensor.Tensor{}, backend.Prompt)
		if err := b.Sync(); err != nil {
			return 0, err
		}
	}
	return time.Since(began).Seconds(), nil
}
