package lora

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/heftai/heft/internal/smallfile"
)

// InRoot reports whether a folder below root has an adapter's files. It fails if one is missing, is no regular file, or
// is a link that leads out of root.
func InRoot(root *os.Root, dir string) error {
	for _, name := range []string{ConfigFile, weightsFile} {
		info, err := root.Stat(filepath.Join(dir, name))
		if err != nil {
			return fmt.Errorf("lora: %w", err)
		}
		if !info.Mode().IsRegular() {
			return fmt.Errorf("lora: %s is no regular file", filepath.Join(dir, name))
		}
	}
	return nil
}

// BaseModel returns the base model that the adapter in dir names, as its config has it; "" if it names none, or the
// config cannot be read.
func BaseModel(dir string) string {
	c, err := readConfigFile(filepath.Join(dir, ConfigFile))
	if err != nil {
		return ""
	}
	return c.BaseModel
}

// List returns the names of the folders in dir that have an adapter's files, sorted. Links that lead out of dir are
// left out.
func List(dir string) ([]string, error) {
	root, err := smallfile.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("lora: %w", err)
	}
	defer root.Close()
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return nil, fmt.Errorf("lora: %w", err)
	}
	var names []string
	for _, e := range entries {
		if InRoot(root, e.Name()) == nil {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	return names, nil
}
