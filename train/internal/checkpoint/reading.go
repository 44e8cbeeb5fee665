// Package checkpoint reads and writes the files of a training checkpoint: a [Folder] that
// replaces its target as a whole, safetensors files of arrays ([Array]), states of optimizers,
// JSON, and their names. It knows no accelerator and no ranks. docs/formats.md documents the
// format.
package checkpoint

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/heftai/heft/internal/smallfile"
	"github.com/heftai/heft/loader"
)

// WriteJSON writes x, indented, as one file.
func (f *Folder) WriteJSON(name string, x any) error {
	b, err := json.MarshalIndent(x, "", " ")
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return f.Write(name, append(b, '\n'))
}

// WriteTensors writes a safetensors file.
func (f *Folder) WriteTensors(name string, tensors []Array, metadata map[string]string) error {
	if err := f.change("write %s", name); err != nil {
		return err
	}
	stem := name[:len(name)-len(filepath.Ext(name))]
	return loader.Save(f.Temp(), slices.Values(Tensors(tensors)), loader.SaveOptions{Stem: stem, Metadata: metadata, Copy: f.summed})
}

// A Reading collects the changes that loading a checkpoint makes. They are applied once
// everything is checked.
type Reading struct {
	Dir    string
	change []func() error
}

// Defer adds a change, which Apply makes.
func (r *Reading) Defer(f func() error) { r.change = append(r.change, f) }

// Apply makes the changes in order. It stops at the first error and returns it.
func (r *Reading) Apply() error {
	for _, f := range r.change {
		if err := f(); err != nil {
			return err
		}
	}
	return nil
}

// ReadJSON reads one file of the checkpoint. Errors name it.
func ReadJSON[T any](r *Reading, name string) (x T, err error) {
	b, err := smallfile.Read(filepath.Join(r.Dir, name), smallfile.State)
	if err == nil {
		err = json.Unmarshal(b, &x)
	}
	if err != nil {
		return x, fmt.Errorf("%s: %w", name, err)
	}
	return x, Verify(r.Dir, name)
}
