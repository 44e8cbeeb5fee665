package data

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"

	"github.com/heftai/heft/train/rng"
)

// Image is a picture with one byte per colour value.
type Image struct {
	// Channels is the number of planes, such as 3 for red, green and blue. Height and Width are in
	// pixels.
	Channels, Height, Width int
	// Pixels have the shape [Channels, Height, Width], row by row, with values from 0 to 255.
	Pixels []byte
	// Label is the number of the picture's class, from 0.
	Label int
}

const (
	cifarSide   = 32
	cifarPlanes = 3
	cifarSize   = cifarPlanes * cifarSide * cifarSide
)

// ReadCIFAR10 reads pictures in CIFAR-10's binary format: a byte for the label (0 … 9) and three
// planes of 32×32. It holds them in memory.
func ReadCIFAR10(r io.Reader) (Slice[Image], error) {
	var all Slice[Image]
	for {
		record := make([]byte, 1+cifarSize)
		n, err := io.ReadFull(r, record)
		switch {
		case errors.Is(err, io.EOF):
			return all, nil
		case errors.Is(err, io.ErrUnexpectedEOF):
			return nil, fmt.Errorf("data: cifar10: picture %d: got %d bytes, want %d", len(all), n, len(record))
		case err != nil:
			return nil, fmt.Errorf("data: cifar10: picture %d: %w", len(all), err)
		case record[0] > 9:
			return nil, fmt.Errorf("data: cifar10: picture %d: got label %d, want 0 to 9", len(all), record[0])
		}
		all = append(all, Image{cifarPlanes, cifarSide, cifarSide, record[1:], int(record[0])})
	}
}

// OpenCIFAR10 reads the files of a cifar-10-batches-bin folder: data_batch_1 to 5, or
// test_batch.
func OpenCIFAR10(dir string, train bool) (Slice[Image], error) {
	names := []string{"test_batch.bin"}
	if train {
		names = []string{"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin", "data_batch_5.bin"}
	}
	var all Slice[Image]
	for _, name := range names {
		path := filepath.Join(dir, name)
		f, err := os.Open(path)
		if err != nil {
			return nil, fmt.Errorf("data: cifar10: %w", err)
		}
		some, err := ReadCIFAR10(f)
		f.Close()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		all = append(all, some...)
	}
	return all, nil
}

// Transform changes a sample at random. It must not modify its argument.
type Transform[T any] func(*rng.Generator, T) (T, error)

// Chain returns a transform that applies steps in order.
func Chain[T any](steps ...Transform[T]) Transform[T] {
	return func(g *rng.Generator, x T) (T, error) {
		for _, f := range steps {
			var err error
			if x, err = f(g, x); err != nil {
				return x, err
			}
		}
		return x, nil
	}
}

// RandomCrop pads an image with padding black pixels on each side and cuts out a random square of
// size pixels. It draws random numbers as torchvision does: the row, then the column, and none if
// there is only one position.
func RandomCrop(size, padding int) Transform[Image] {
	return func(g *rng.Generator, m Image) (Image, error) {
		rows, columns := m.Height+2*padding, m.Width+2*padding
		if size < 1 || padding < 0 || rows < size || columns < size {
			return m, fmt.Errorf("data: crop: got size %d for an image of %d×%d with %d pixels of padding", size, m.Height, m.Width, padding)
		}
		top, left := 0, 0
		if rows != size || columns != size {
			top = g.IntN(rows - size + 1)
			left = g.IntN(columns - size + 1)
		}
		out := Image{m.Channels, size, size, make([]byte, m.Channels*size*size), m.Label}
		// Columns from lo to hi of the result lie within the picture.
		lo, hi := max(0, padding-left), min(size, padding-left+m.Width)
		for c := range m.Channels {
			for y := range size {
				from := top + y - padding
				if from < 0 || from >= m.Height || lo >= hi {
					continue
				}
				row := m.Pixels[(c*m.Height+from)*m.Width:][:m.Width]
				copy(out.Pixels[(c*size+y)*size+lo:][:hi-lo], row[lo+left-padding:])
			}
		}
		return out, nil
	}
}

// RandomFlip mirrors an image horizontally with probability p.
func RandomFlip(p float32) Transform[Image] {
	return func(g *rng.Generator, m Image) (Image, error) {
		if g.Float32() >= p {
			return m, nil
		}
		out := m
		out.Pixels = make([]byte, len(m.Pixels))
		for at := 0; at+m.Width <= len(m.Pixels); at += m.Width {
			for x := range m.Width {
				out.Pixels[at+x] = m.Pixels[at+m.Width-1-x]
			}
		}
		return out, nil
	}
}

// Augmented is a data set whose samples are transformed at random each time they are read.
type Augmented[T any] struct {
	from Dataset[T]
	by   Transform[T]
	seed uint64

	mu    sync.Mutex
	g     *rng.Generator // nil: each sample has its own generator
	epoch int
}

// NewAugmented draws from a separate generator for each sample, seeded by seed, the epoch and the
// sample's index. The results do not depend on the number of workers.
func NewAugmented[T any](from Dataset[T], by Transform[T], seed uint64) *Augmented[T] {
	return &Augmented[T]{from: from, by: by, seed: seed}
}

// NewAugmentedFrom draws from g in the order in which samples are read, as torch does without
// workers. With Options.Workers that order is random.
func NewAugmentedFrom[T any](from Dataset[T], by Transform[T], g *rng.Generator) *Augmented[T] {
	return &Augmented[T]{from: from, by: by, g: g}
}

// Len returns the number of samples.
func (a *Augmented[T]) Len() int { return a.from.Len() }

// SetEpoch changes the random numbers, and passes the epoch to the underlying data set.
func (a *Augmented[T]) SetEpoch(epoch int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.epoch = epoch
	setEpoch(a.from, epoch)
}

// At reads sample i and transforms it.
func (a *Augmented[T]) At(i int) (T, error) {
	x, err := a.from.At(i)
	if err != nil {
		return x, err
	}
	a.mu.Lock()
	if a.g != nil {
		defer a.mu.Unlock()
		return a.by(a.g, x)
	}
	seed := mix(mix(a.seed+uint64(a.epoch)) + uint64(i))
	a.mu.Unlock()
	return a.by(rng.New(seed), x)
}

// mix is the finalizer of splitmix64: similar seeds give unrelated ones.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// ImageBatch is a batch of pictures of one size. The Collate of [Normalize] makes it, in new
// memory. A batch without pictures is the zero value.
type ImageBatch struct {
	// Rows is the number of pictures. The other three are the dimensions of each [Image].
	Rows, Channels, Height, Width int
	// Pixels have the shape [Rows, Channels, Height, Width], in torch's order of dimensions. They are
	// normalised.
	Pixels []float32
	// Labels are the numbers of classes, one per picture.
	Labels []int32
}

// CIFAR10Mean and CIFAR10Std are the usual mean and standard deviation of each channel of CIFAR-10.
func CIFAR10Mean() []float32 { return []float32{0.4914, 0.4822, 0.4465} }
func CIFAR10Std() []float32  { return []float32{0.2023, 0.1994, 0.2010} }

// Normalize returns the Collate that scales bytes to 0 … 1 and then to (x - mean) / std for each
// channel. If both are nil, it only scales. The images of a batch must have one size.
func Normalize(mean, std []float32) Collate[Image, ImageBatch] {
	return func(samples []Image) (ImageBatch, error) {
		var b ImageBatch
		if len(samples) == 0 {
			return b, nil
		}
		first := samples[0]
		b = ImageBatch{Rows: len(samples), Channels: first.Channels, Height: first.Height, Width: first.Width}
		size := b.Height * b.Width
		if mean != nil && len(mean) != b.Channels || std != nil && len(std) != b.Channels {
			return b, fmt.Errorf("data: normalize: got %d means and %d deviations, want %d, one per channel", len(mean), len(std), b.Channels)
		}
		b.Pixels = make([]float32, 0, b.Rows*b.Channels*size)
		for i, m := range samples {
			if m.Channels != b.Channels || m.Height != b.Height || m.Width != b.Width || len(m.Pixels) != b.Channels*size {
				return b, fmt.Errorf("data: image %d of a batch has %d×%d×%d in %d bytes, the first %d×%d×%d",
					i, m.Channels, m.Height, m.Width, len(m.Pixels), b.Channels, b.Height, b.Width)
			}
			b.Labels = append(b.Labels, int32(m.Label))
			for c := range b.Channels {
				off, by := float32(0), float32(1)
				if mean != nil {
					off = mean[c]
				}
				if std != nil {
					by = std[c]
				}
				for _, p := range m.Pixels[c*size : (c+1)*size] {
					b.Pixels = append(b.Pixels, (float32(p)/255-off)/by)
				}
			}
		}
		return b, nil
	}
}
