package main

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/internal/cmdline"
	"github.com/heftai/heft/internal/lora"
)

// adapterFlags name the adapters that are served with the model.
type adapterFlags struct {
	Lora []string `help:"Serve this PEFT adapter of MODEL (default: the first) as NAME; may repeat." aliases:"lora-modules" sep:"none" placeholder:"[MODEL/]NAME=DIR"`
}

// loraDirFlags name the adapters that come and go.
type loraDirFlags struct {
	LoraDir    string `help:"Serve each PEFT adapter in DIR; clients may load and unload more from it." placeholder:"DIR"`
	LoraMemory string `help:"Limit the memory of adapters of --lora-dir (default: a sixteenth of the limit)." placeholder:"SIZE"`
}

// An otherAdapter is an adapter of another model than the first one.
type otherAdapter struct {
	model string
	dispatch.Adapter
}

// adapters are the folders that --lora names, of the first model and of others. models are the names of all
// models, the first one's first.
func (c *adapterFlags) adapters(models ...string) (list []dispatch.Adapter, others []otherAdapter, err error) {
	taken := map[string]bool{}
	for _, name := range models {
		taken[name] = true
	}
	for _, text := range lines(c.Lora) {
		name, dir, ok := strings.Cut(text, "=")
		model := modelOf(name, models)
		if model != "" {
			name = name[len(model)+1:]
		}
		switch {
		case !ok || name == "" || dir == "":
			return nil, nil, cmdline.Misusef("--lora: got %q, want NAME=DIR or MODEL/NAME=DIR", text)
		case taken[name]:
			return nil, nil, cmdline.Misusef("--lora %s: the name %s is taken", text, name)
		}
		taken[name] = true
		a := dispatch.Adapter{Name: name, Dir: dir}
		if model == "" || model == models[0] {
			list = append(list, a)
			continue
		}
		if _, err := os.Stat(filepath.Join(dir, lora.ConfigFile)); err != nil { // the rest is read with the model
			return nil, nil, cmdline.Misusef("--lora %s: %w", text, err)
		}
		others = append(others, otherAdapter{model, a})
	}
	return list, others, nil
}

// modelOf is the longest name of a model that MODEL/NAME begins with, "" if there is none.
func modelOf(text string, models []string) (longest string) {
	for _, m := range models {
		if strings.HasPrefix(text, m+"/") && len(m) > len(longest) {
			longest = m
		}
	}
	return longest
}

// dynamic are the names of the adapters in --lora-dir, and the memory for those in use under a limit of the host's
// memory. more says that there are others that come into memory when a request uses them.
func (c *loraDirFlags) dynamic(limit int64, more bool) (names []string, memory int64, err error) {
	if c.LoraDir == "" && !more {
		if c.LoraMemory != "" {
			return nil, 0, cmdline.Misusef("--lora-memory has a meaning only with --lora-dir or --lora MODEL/NAME=DIR")
		}
		return nil, 0, nil
	}
	if c.LoraDir != "" {
		if names, err = lora.List(c.LoraDir); err != nil {
			return nil, 0, cmdline.Misusef("--lora-dir: %w", err)
		}
	}
	if memory = limit / loraShare; c.LoraMemory != "" {
		if memory, err = devicemap.ParseSize(c.LoraMemory); err != nil || memory <= 0 {
			return nil, 0, cmdline.Misusef("--lora-memory %q: want a size such as 256MiB", c.LoraMemory)
		}
	}
	return names, memory, nil
}

// loraShare is the part of the host's memory, 1/loraShare, that adapters which come and go may take.
const loraShare = 16
