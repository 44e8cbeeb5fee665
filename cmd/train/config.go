package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/heftai/heft/internal/cmdline"
	"github.com/heftai/heft/internal/hubcache"
	"github.com/heftai/heft/internal/smallfile"
)

// kind is the type of a key's values.
type kind int

const (
	text kind = iota
	flag
	number
	mapping
	list
)

// configKey is a key of Accelerate's configuration file. A nil value omits the key.
type configKey struct {
	kind  kind
	value any // if the file has none
}

// configKeys are the keys of Accelerate 1.15.
var configKeys = map[string]configKey{
	"compute_environment":    {text, nil},
	"distributed_type":       {text, nil},
	"mixed_precision":        {text, nil},
	"use_cpu":                {flag, nil},
	"debug":                  {flag, nil},
	"num_processes":          {number, -1},
	"machine_rank":           {number, 0},
	"num_machines":           {number, 1},
	"gpu_ids":                {text, nil},
	"main_process_ip":        {text, nil},
	"main_process_port":      {number, nil},
	"rdzv_backend":           {text, "static"},
	"same_network":           {flag, false},
	"main_training_function": {text, "main"},
	"enable_cpu_affinity":    {flag, false},
	"fp8_config":             {mapping, nil},
	"deepspeed_config":       {mapping, nil},
	"fsdp_config":            {mapping, nil},
	"parallelism_config":     {mapping, nil},
	"megatron_lm_config":     {mapping, nil},
	"mpirun_config":          {mapping, nil},
	"downcast_bf16":          {flag, false},
	"tpu_name":               {text, nil},
	"tpu_zone":               {text, nil},
	"tpu_use_cluster":        {flag, false},
	"tpu_use_sudo":           {flag, false},
	"command_file":           {text, nil},
	"commands":               {list, nil},
	"tpu_vm":                 {list, nil},
	"tpu_env":                {list, nil},
	"dynamo_config":          {mapping, nil},
}

// config is Accelerate's configuration, by key.
type config map[string]any

// basicConfig returns the configuration that Accelerate writes by default.
func basicConfig(processes int, precision string) config {
	c := config{"compute_environment": "LOCAL_MACHINE", "distributed_type": "NO", "mixed_precision": precision, "use_cpu": true,
		"debug": false, "num_processes": processes}
	if processes > 1 {
		c["distributed_type"] = "MULTI_CPU"
	}
	for key, k := range configKeys {
		if _, ok := c[key]; !ok && k.value != nil {
			c[key] = k.value
		}
	}
	return c
}

// parseConfig parses YAML or JSON. It returns an error that names unknown keys.
func parseConfig(b []byte, name string) (config, error) {
	c := config{}
	if err := yaml.NewDecoder(bytes.NewReader(b)).Decode(&c); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if c == nil { // the file is null
		c = config{}
	}
	var unknown []string
	for key, v := range c {
		k, ok := configKeys[key]
		if !ok {
			unknown = append(unknown, key)
			continue
		}
		if v == nil {
			continue
		}
		v, ok := k.kind.value(v)
		if !ok {
			return nil, fmt.Errorf("%s: %s: got %v, want a %v", name, key, c[key], k.kind)
		}
		c[key] = v
	}
	if len(unknown) > 0 {
		slices.Sort(unknown)
		return nil, fmt.Errorf("%s: unknown keys: %s", name, strings.Join(unknown, ", "))
	}
	for key, k := range configKeys {
		if c[key] == nil {
			delete(c, key)
			if k.value != nil {
				c[key] = k.value
			}
		}
	}
	return c, nil
}

func (k kind) String() string {
	return [...]string{"text", "true or false", "number", "mapping", "list"}[k]
}

// value converts v to the kind. Older files write flags as yes and no.
func (k kind) value(v any) (any, bool) {
	switch v := v.(type) {
	case string:
		if k != flag {
			return v, k == text
		}
		switch strings.ToLower(v) {
		case "yes", "true":
			return true, true
		case "no", "false":
			return false, true
		}
	case bool:
		return v, k == flag
	case int:
		if k == text {
			return fmt.Sprint(v), true
		}
		return v, k == number
	case map[string]any, config:
		return v, k == mapping
	case []any:
		return v, k == list
	}
	return v, false
}

func (c config) text(key string) string { s, _ := c[key].(string); return s }
func (c config) number(key string) int  { n, _ := c[key].(int); return n }

// precision returns mixed_precision, or "no" if it is not set.
func (c config) precision() string {
	if p := c.text("mixed_precision"); p != "" {
		return p
	}
	return "no"
}

// encode writes c with sorted keys, as JSON if the file's name ends in .json, and otherwise as
// YAML.
func (c config) encode(name string) ([]byte, error) {
	var out bytes.Buffer
	if filepath.Ext(name) == ".json" {
		e := json.NewEncoder(&out)
		e.SetIndent("", "  ")
		e.SetEscapeHTML(false)
		err := e.Encode(c)
		return out.Bytes(), err
	}
	for _, key := range slices.Sorted(maps.Keys(c)) {
		b, err := yaml.Marshal(map[string]any{key: c[key]})
		if err != nil {
			return nil, err
		}
		out.Write(b)
	}
	return out.Bytes(), nil
}

// configFolder returns the folder of Accelerate's configuration, or "" if there is no home
// directory.
func configFolder() string {
	if home := os.Getenv("HF_HOME"); home != "" {
		return filepath.Join(home, "accelerate")
	}
	cache := os.Getenv("XDG_CACHE_HOME")
	if cache == "" {
		home := hubcache.Home()
		if home == "" {
			return ""
		}
		cache = filepath.Join(home, ".cache")
	}
	return filepath.Join(cache, "huggingface", "accelerate")
}

// findConfig reads the configuration at path, or the default one if path is empty. It returns nil
// if there is none.
func findConfig(path string) (config, string, error) {
	paths := []string{path}
	if path == "" {
		dir := configFolder()
		if dir == "" {
			return nil, "", nil
		}
		paths = []string{filepath.Join(dir, "default_config.yaml"), filepath.Join(dir, "default_config.json")}
	}
	for _, p := range paths {
		b, err := smallfile.Read(p, smallfile.Config)
		if errors.Is(err, fs.ErrNotExist) && path == "" {
			continue
		}
		var at *fs.PathError
		switch {
		case path != "" && errors.As(err, &at):
			return nil, p, cmdline.Misusef("--config-file %s: %w", path, at.Err)
		case err != nil:
			return nil, p, cmdline.Misuse(err)
		}
		c, err := parseConfig(b, p)
		if err != nil {
			return nil, p, cmdline.Misuse(err)
		}
		return c, p, nil
	}
	return nil, "", nil
}
