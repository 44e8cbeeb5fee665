package main

import (
	"cmp"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/heftai/heft/internal/cmdline"
	"github.com/heftai/heft/internal/hub"
	"github.com/heftai/heft/internal/smallfile"
)

// servedFlags name the models to serve.
type servedFlags struct {
	Model       []string      `help:"Serve this folder, file or ORG/NAME[@REVISION]; repeat as NAME=M (default: a demo)." sep:"none" placeholder:"M"`
	M           string        `arg:"" optional:"" help:"Name the model, as --model does."`
	ModelsDir   string        `help:"Serve each model folder and GGUF file in DIR under its name, on demand." placeholder:"DIR"`
	IdleUnload  time.Duration `help:"Unload a model after this long without requests; 0s never does (default ${default})." default:"0s" placeholder:"D"`
	LoadTimeout time.Duration `help:"Answer 503 if loading a request's model takes longer (default ${default})." default:"60s" placeholder:"D"`
}

// check rejects invalid values.
func (f *servedFlags) check() error {
	switch {
	case f.IdleUnload < 0:
		return cmdline.Misusef("--idle-unload: got %v, want at least 0s", f.IdleUnload)
	case f.LoadTimeout <= 0:
		return cmdline.Misusef("--load-timeout: got %v, want more than 0s", f.LoadTimeout)
	}
	return nil
}

// A namedModel is a model as given by the flags. If name is "", the files determine it.
type namedModel struct{ name, path string }

// given returns the models of --model and the positional one, in order. If there are none, it
// returns the demo.
func (f *servedFlags) given() ([]namedModel, error) {
	var list []namedModel
	for _, text := range lines(f.Model) {
		m := namedModel{path: text}
		if name, rest, ok := strings.Cut(text, "="); ok && !exists(text) {
			if m = (namedModel{name, rest}); name == "" || rest == "" {
				return nil, cmdline.Misusef("--model %s: want M or NAME=M", text)
			}
		}
		m.path = hub.FromPage(m.path)
		list = append(list, m)
	}
	if f.M != "" {
		m := namedModel{path: hub.FromPage(f.M)}
		if len(list) > 0 && (len(list) > 1 || list[0] != m) {
			return nil, cmdline.Misusef("the model was given twice: %s and --model %s", f.M, strings.Join(f.Model, ", "))
		}
		list = []namedModel{m}
	}
	if len(list) == 0 && f.ModelsDir == "" {
		list = []namedModel{{}}
	}
	return list, nil
}

func exists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

// A servedModel is a model with the name that requests use.
type servedModel struct {
	name   string
	source source
}

// served finds the files of all models. Those of --models-dir come last, sorted by name. first is
// the number of models that --model names.
func (f *servedFlags) served(as string) (list []servedModel, first int, err error) {
	given, err := f.given()
	if err != nil {
		return nil, 0, err
	}
	if as != "" && len(given) > 1 {
		return nil, 0, cmdline.Misusef("--served-model-name names one model; use --model NAME=M for several")
	}
	for _, m := range given {
		s, err := newSource(m.path)
		if err != nil {
			return nil, 0, err
		}
		list = append(list, servedModel{cmp.Or(m.name, as, s.name), s})
		as = ""
	}
	first = len(list)
	for i, m := range list {
		if slices.ContainsFunc(list[:i], func(other servedModel) bool { return other.name == m.name }) {
			return nil, 0, cmdline.Misusef("--model: two models are called %s; use --model NAME=M", m.name)
		}
	}
	if f.ModelsDir == "" {
		return list, first, nil
	}
	found, err := modelsIn(f.ModelsDir)
	if err != nil {
		return nil, 0, cmdline.Misusef("--models-dir: %w", err)
	}
	for _, m := range found {
		if slices.ContainsFunc(list, func(other servedModel) bool { return other.name == m.name }) {
			slog.Warn("a model of --models-dir has the name of another model and is not served", "model", m.name)
			continue
		}
		list = append(list, m)
	}
	if len(list) == 0 {
		return nil, 0, cmdline.Misusef("--models-dir %s: got no folder with config.json and no GGUF file", f.ModelsDir)
	}
	return list, first, nil
}

// modelsIn returns the models of a folder, sorted: folders with config.json or GGUF files, GGUF
// files, and such folders one level below, as ORG/NAME. It omits links that lead out of the folder,
// with a warning.
func modelsIn(dir string) ([]servedModel, error) {
	root, err := smallfile.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	var list []servedModel
	if err := findModels(root, dir, ".", 2, &list); err != nil {
		return nil, err
	}
	slices.SortFunc(list, func(a, b servedModel) int { return cmp.Compare(a.name, b.name) })
	return list, nil
}

// findModels adds the models of a folder below root, and of folders in it, down to a depth.
func findModels(root *os.Root, dir, at string, depth int, list *[]servedModel) error {
	entries, err := fs.ReadDir(root.FS(), at)
	if err != nil {
		return err
	}
	for _, e := range entries {
		below := path.Join(at, e.Name())
		if strings.HasPrefix(e.Name(), ".") {
			continue
		}
		info, err := root.Stat(below)
		switch {
		case err != nil:
			slog.Warn("an entry of --models-dir is not served", "entry", below, "reason", err)
			continue
		case info.Mode().IsRegular() && strings.HasSuffix(e.Name(), ".gguf"):
		case !info.IsDir():
			continue
		case !isModel(root, below):
			if depth > 1 {
				if err := findModels(root, dir, below, depth-1, list); err != nil {
					slog.Warn("an entry of --models-dir is not served", "entry", below, "reason", err)
				}
			}
			continue
		}
		s, err := newSource(filepath.Join(dir, filepath.FromSlash(below)))
		if err != nil {
			slog.Warn("an entry of --models-dir is not served", "entry", below, "reason", err)
			continue
		}
		*list = append(*list, servedModel{strings.TrimSuffix(below, ".gguf"), s})
	}
	return nil
}

// isModel reports whether a folder below root has a model's files.
func isModel(root *os.Root, dir string) bool {
	entries, err := fs.ReadDir(root.FS(), dir)
	return err == nil && slices.ContainsFunc(entries, func(e fs.DirEntry) bool {
		return e.Name() == "config.json" || strings.HasSuffix(e.Name(), ".gguf")
	})
}

// created returns when the model's config.json, or its file, was last written.
func (s source) created() time.Time {
	for _, name := range []string{filepath.Join(s.folder, "config.json"), s.path} {
		if info, err := os.Stat(name); err == nil && s.path != "" {
			return info.ModTime()
		}
	}
	return time.Time{}
}

// lines returns the values of a repeated flag. In the environment each line is one value.
func lines(values []string) []string {
	var list []string
	for _, text := range values {
		for line := range strings.Lines(text) {
			if line = strings.TrimSpace(line); line != "" {
				list = append(list, line)
			}
		}
	}
	return list
}
