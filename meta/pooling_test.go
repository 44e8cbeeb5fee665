package meta

import (
	"errors"
	"strings"
	"testing"
	"testing/fstest"
)

const (
	listed     = `[{"idx":0,"name":"0","path":"","type":"sentence_transformers.models.Transformer"},{"idx":1,"name":"1","path":"1_Pooling","type":"sentence_transformers.models.Pooling"}]`
	normalised = `[{"path":"","type":"sentence_transformers.models.Transformer"},{"path":"pool","type":"a.Pooling"},{"path":"2_Normalize","type":"sentence_transformers.models.Normalize"}]`
)

// TestReadPooling has the files that sentence-transformers writes and broken ones.
func TestReadPooling(t *testing.T) {
	for name, test := range map[string]struct {
		files map[string]string
		want  Pooling
		err   string
	}{
		"no files":       {nil, Pooling{Mode: PoolLast, Normalise: true}, ""},
		"cls":            {map[string]string{"1_Pooling/config.json": `{"pooling_mode_cls_token":true,"pooling_mode_mean_tokens":false}`}, Pooling{Mode: PoolFirst, Normalise: true}, ""},
		"no normalising": {map[string]string{"modules.json": listed, "1_Pooling/config.json": `{"pooling_mode_mean_tokens":true,"include_prompt":true}`}, Pooling{Mode: PoolMean}, ""},
		"another folder": {map[string]string{"modules.json": normalised, "pool/config.json": `{"pooling_mode_lasttoken":true,"pooling_mode_mean_tokens":false}`}, Pooling{Mode: PoolLast, Normalise: true}, ""},
		"by name":        {map[string]string{"1_Pooling/config.json": `{"pooling_mode":"cls"}`}, Pooling{Mode: PoolFirst, Normalise: true}, ""},
		"defaults":       {map[string]string{"1_Pooling/config.json": `{"word_embedding_dimension":8}`}, Pooling{Mode: PoolMean, Normalise: true}, ""},
		"two modes":      {map[string]string{"1_Pooling/config.json": `{"pooling_mode_cls_token":true,"pooling_mode_mean_tokens":true}`}, Pooling{Normalise: true, Unsupported: "pooling by cls_token and mean_tokens"}, ""},
		"none":           {map[string]string{"1_Pooling/config.json": `{"pooling_mode_mean_tokens":false}`}, Pooling{Normalise: true, Unsupported: "no pooling at all"}, ""},
		"dense":          {map[string]string{"modules.json": `[{"path":"2_Dense","type":"sentence_transformers.models.Dense"}]`}, Pooling{Unsupported: `the module "Dense"`}, ""},
		"broken list":    {map[string]string{"modules.json": `{`}, Pooling{}, "modules.json"},
		"broken config":  {map[string]string{"1_Pooling/config.json": `[]`}, Pooling{}, "1_Pooling/config.json"},
		"flag of text":   {map[string]string{"1_Pooling/config.json": `{"pooling_mode_cls_token":"yes"}`}, Pooling{}, "pooling_mode_cls_token"},
		"path outside":   {map[string]string{"modules.json": `[{"path":"../x","type":"a.Pooling"}]`}, Pooling{}, "want a path within the model"},
	} {
		t.Run(name, func(t *testing.T) {
			files := fstest.MapFS{}
			for path, text := range test.files {
				files[path] = &fstest.MapFile{Data: []byte(text)}
			}
			got, err := ReadPooling(files)
			var config *ConfigError
			switch {
			case test.err == "" && (err != nil || got != test.want):
				t.Errorf("%+v (%v), want %+v", got, err, test.want)
			case test.err != "" && (!errors.As(err, &config) || !strings.Contains(err.Error(), test.err)):
				t.Errorf("error %v, want one about %s", err, test.err)
			}
		})
	}
}

func FuzzReadPooling(f *testing.F) {
	f.Add(listed, `{"pooling_mode_mean_tokens":true}`)
	f.Add(normalised, `{}`)
	f.Fuzz(func(t *testing.T, modules, config string) {
		_, err := ReadPooling(fstest.MapFS{
			"modules.json": {Data: []byte(modules)}, "1_Pooling/config.json": {Data: []byte(config)}})
		var named *ConfigError
		if err != nil && !errors.As(err, &named) {
			t.Errorf("%T", err)
		}
	})
}
