package loader

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/heftai/heft/internal/golden"
	"github.com/heftai/heft/meta"
)

// TestGoldenABareConfigIsPlannedAsItsHeaders: every model of the fixtures takes as many bytes by its
// config alone as by the headers of its files, quantised ones included. The dtype of scales and of
// a config does not say which weights the checkpoint leaves unquantised: elements are
// compared there. Files may have parameters of the config as one, as Inkling's have gate and up: then all of those that only one
// of the two has are compared by their bytes.
func TestGoldenABareConfigIsPlannedAsItsHeaders(t *testing.T) {
	quantized := 0
	dirs := golden.Glob(t, "infer/models/*/config.json")
	for _, path := range dirs {
		dir := filepath.Dir(path)
		model, ck, err := OpenModel(golden.Unpacked(t, dir))
		if err != nil {
			t.Errorf("%s: %v", dir, err)
			continue
		}
		bare, err := meta.New(model.Config, nil)
		if err != nil {
			t.Fatal(err)
		}
		want, alone := map[string]string{}, map[string]int64{} // alone: bytes of tensors that only the files have
		for name, p := range model.Root.AllParams() {
			want[name], alone[name] = formatsOf(p), p.Bytes()
			if p.Stored > 0 {
				quantized++
			}
		}
		for name, p := range bare.Root.AllParams() {
			if _, there := want[name]; !there {
				alone["the config"] -= p.Bytes()
				continue
			}
			delete(alone, name)
			if got := formatsOf(p); got != want[name] && !aloneUnquantized(name, want) && !eitherWay(name, p, got+want[name]) {
				t.Errorf("%s: %s: %s by its config, %s by its headers", filepath.Base(dir), name, got, want[name])
			}
		}
		more := int64(0)
		for _, bytes := range alone {
			more += bytes
		}
		if more != 0 {
			t.Errorf("%s: %d bytes more by its headers: %v", filepath.Base(dir), more, alone)
		}
		_ = ck.Close()
	}
	golden.Count(t, "infer/models (bare configs)", len(dirs))
	if len(dirs) > 0 && quantized == 0 {
		t.Error("no model of the fixtures is quantised")
	}
}

var layerNumber = regexp.MustCompile(`\.\d+\.`)

// aloneUnquantized reports whether a weight is stored as plain values although the same weight of
// another layer is quantised. Configs name no such exceptions; headers do.
func aloneUnquantized(name string, stored map[string]string) bool {
	if stored[name] != "values " {
		return false
	}
	for other, format := range stored {
		if format != "values " && layerNumber.ReplaceAllString(other, ".") == layerNumber.ReplaceAllString(name, ".") {
			return true
		}
	}
	return false
}

// eitherWay reports whether a config does not tell how a weight is stored: with bitsandbytes, experts are quantised where
// the file has each of them apart, as transformers 4 saved them, and gates of one row by some writers only.
func eitherWay(name string, p *meta.Param, formats string) bool {
	return strings.Contains(formats, "bitsandbytes") && (strings.Contains(name, ".experts.") || p.Shape[0] == 1)
}

// formatsOf are the formats of a parameter's sources.
func formatsOf(p *meta.Param) (text string) {
	for _, s := range p.Sources {
		if q := s.Quant; q != nil {
			text += fmt.Sprintf("%v[%d×%d] ", q.Format, q.Rows, q.Columns)
		} else {
			text += "values "
			return text // by how many tensors differs from dialect to dialect
		}
	}
	return text
}
