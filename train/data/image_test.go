package data

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/heftai/heft/train/rng"
)

func cifar(labels ...byte) []byte {
	var b []byte
	for i, l := range labels {
		b = append(b, l)
		b = append(b, bytes.Repeat([]byte{byte(i)}, cifarSize)...)
	}
	return b
}

func TestCIFAR10(t *testing.T) {
	images, err := ReadCIFAR10(bytes.NewReader(cifar(3, 9)))
	if err != nil || len(images) != 2 || images[1].Label != 9 || images[1].Pixels[cifarSize-1] != 1 || images[0].Width != 32 {
		t.Fatalf("%d images, %v", len(images), err)
	}
	for name, b := range map[string][]byte{"cut": cifar(3)[:100], "label": cifar(10)} {
		if _, err := ReadCIFAR10(bytes.NewReader(b)); err == nil || !strings.Contains(err.Error(), "picture 0") {
			t.Errorf("%s: %v", name, err)
		}
	}
	dir := t.TempDir()
	for i := range 5 {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("data_batch_%d.bin", i+1)), cifar(byte(i)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if images, err = OpenCIFAR10(dir, true); err != nil || len(images) != 5 || images[4].Label != 4 {
		t.Errorf("%d images, %v", len(images), err)
	}
	if _, err := OpenCIFAR10(dir, false); err == nil {
		t.Error("a test set that is not there")
	}
}

func FuzzReadCIFAR10(f *testing.F) {
	f.Add(cifar(1, 2))
	f.Fuzz(func(t *testing.T, b []byte) {
		if images, err := ReadCIFAR10(bytes.NewReader(b)); err == nil && len(images)*(cifarSize+1) != len(b) {
			t.Errorf("%d images in %d bytes", len(images), len(b))
		}
	})
}

// tiny is an image whose pixels tell their place.
func tiny(h, w int) Image {
	m := Image{Channels: 2, Height: h, Width: w, Pixels: make([]byte, 2*h*w), Label: 1}
	for i := range m.Pixels {
		m.Pixels[i] = byte(i + 1)
	}
	return m
}

func TestCropping(t *testing.T) {
	seen := map[string]bool{}
	for seed := range uint64(60) {
		m := tiny(3, 4)
		g, h := rng.New(seed), rng.New(seed)
		got, err := RandomCrop(4, 2)(g, m)
		if err != nil {
			t.Fatal(err)
		}
		top, left := h.IntN(3+4-4+1), h.IntN(4+4-4+1)
		for c := range 2 {
			for y := range 4 {
				for x := range 4 {
					want := byte(0)
					if r, k := top+y-2, left+x-2; r >= 0 && r < 3 && k >= 0 && k < 4 {
						want = m.Pixels[(c*3+r)*4+k]
					}
					if p := got.Pixels[(c*4+y)*4+x]; p != want {
						t.Fatalf("crop at %d, %d: pixel %d %d %d is %d, want %d", top, left, c, y, x, p, want)
					}
				}
			}
		}
		seen[fmt.Sprint(top, left)] = true
	}
	if len(seen) < 12 {
		t.Errorf("only %d of 20 places were tried", len(seen))
	}
	if _, err := RandomCrop(9, 1)(rng.New(0), tiny(3, 3)); err == nil {
		t.Error("a crop larger than the image")
	}
	g := rng.New(4)
	if m, err := RandomCrop(3, 0)(g, tiny(3, 3)); err != nil || !reflect.DeepEqual(m, tiny(3, 3)) || g.Uint32() != rng.New(4).Uint32() {
		t.Errorf("a crop without a choice: %v, %v", m, err)
	}
}

func TestFlipping(t *testing.T) {
	m := tiny(1, 3)
	got, err := RandomFlip(1)(rng.New(0), m)
	if err != nil || fmt.Sprint(got.Pixels) != "[3 2 1 6 5 4]" || m.Pixels[0] != 1 {
		t.Errorf("flipped to %v (%v), from %v", got.Pixels, err, m.Pixels)
	}
	if got, _ = RandomFlip(0)(rng.New(0), m); fmt.Sprint(got.Pixels) != "[1 2 3 4 5 6]" {
		t.Errorf("not flipped to %v", got.Pixels)
	}
}

func TestAugmentingIsTheSameForAnyWorkers(t *testing.T) {
	images := make(Slice[Image], 20)
	for i := range images {
		images[i] = tiny(5, 5)
	}
	steps := Chain(RandomCrop(5, 2), RandomFlip(0.5))
	epochs := func(workers int) [][]byte {
		l := must(NewLoader(NewAugmented(images, steps, 7), Samples, Options{BatchSize: 4, Workers: workers}))
		if err := l.Prepare(PrepareOptions{}); err != nil {
			t.Fatal(err)
		}
		var all [][]byte
		for range 2 {
			for b, err := range l.All(context.Background()) {
				if err != nil {
					t.Fatal(err)
				}
				for _, m := range b {
					all = append(all, m.Pixels)
				}
			}
		}
		return all
	}
	one := epochs(0)
	if !reflect.DeepEqual(one, epochs(3)) {
		t.Error("workers change the images")
	}
	if reflect.DeepEqual(one[:20], one[20:]) {
		t.Error("both epochs are the same")
	}
	g := rng.New(3)
	from := NewAugmentedFrom(images, steps, g)
	if _, err := from.At(0); err != nil {
		t.Fatal(err)
	}
	h := rng.New(3)
	h.IntN(5)
	h.IntN(5)
	h.Float32()
	if g.Uint32() != h.Uint32() {
		t.Error("a shared generator is not drawn from in torchvision's order")
	}
}

func TestNormalizing(t *testing.T) {
	m := Image{Channels: 2, Height: 1, Width: 2, Pixels: []byte{0, 255, 51, 102}, Label: 3}
	b, err := Normalize([]float32{0.5, 0.2}, []float32{0.5, 0.1})([]Image{m, m})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []float64{-1, 1, 0, 2} {
		for _, got := range []float32{b.Pixels[i], b.Pixels[4+i]} {
			if !(math.Abs(float64(got)-want) <= 1e-6) {
				t.Errorf("pixel %d is %v, want %v", i, got, want)
			}
		}
	}
	if fmt.Sprint(b.Rows, b.Channels, b.Height, b.Width, b.Labels) != "2 2 1 2 [3 3]" {
		t.Errorf("batch %+v", b)
	}
	if _, err := Normalize([]float32{1}, nil)([]Image{m}); err == nil {
		t.Error("one mean for two channels")
	}
	if _, err := Normalize(nil, nil)([]Image{m, tiny(2, 2)}); err == nil {
		t.Error("images of two sizes in a batch")
	}
	if b, err := Normalize(nil, nil)(nil); err != nil || b.Rows != 0 {
		t.Errorf("an empty batch: %+v, %v", b, err)
	}
	if len(CIFAR10Mean()) != 3 || len(CIFAR10Std()) != 3 {
		t.Error("CIFAR-10 has three channels")
	}
}

func BenchmarkCIFAR10Epoch(b *testing.B) {
	images := make(Slice[Image], 512)
	for i := range images {
		images[i] = Image{3, 32, 32, make([]byte, cifarSize), 0}
	}
	from := NewAugmented(images, Chain(RandomCrop(32, 4), RandomFlip(0.5)), 1)
	l := must(NewLoader(from, Normalize(CIFAR10Mean(), CIFAR10Std()), Options{BatchSize: 128, Workers: 2}))
	for b.Loop() {
		for _, err := range l.All(b.Context()) {
			if err != nil {
				b.Fatal(err)
			}
		}
	}
}
