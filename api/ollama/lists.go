package ollama

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/api/wire"
	"github.com/heftai/heft/meta"
	"github.com/heftai/heft/text"
)

// apiVersion is the version of Ollama whose API this package implements. Clients compare it with
// the minimum version that they need.
const apiVersion = "0.13.0"

// details describe a model in lists.
type details struct {
	Parent       string   `json:"parent_model"`
	Format       string   `json:"format"`
	Family       string   `json:"family"`
	Families     []string `json:"families"`
	Size         string   `json:"parameter_size"`
	Quantization string   `json:"quantization_level"`
}

// listed is a model in the response of /api/tags.
type listed struct {
	Name     string    `json:"name"`
	Model    string    `json:"model"`
	Modified time.Time `json:"modified_at"`
	Size     int64     `json:"size"`
	Digest   string    `json:"digest"`
	Details  details   `json:"details"`
}

// running is a model in the response of /api/ps.
type running struct {
	Name    string    `json:"name"`
	Model   string    `json:"model"`
	Size    int64     `json:"size"`
	Digest  string    `json:"digest"`
	Details details   `json:"details"`
	Expires time.Time `json:"expires_at"`
	VRAM    int64     `json:"size_vram"`
	Context int       `json:"context_length"`
}

// shown is the response of /api/show.
type shown struct {
	License      string         `json:"license"`
	Modelfile    string         `json:"modelfile"`
	Parameters   string         `json:"parameters"`
	Template     string         `json:"template"`
	Details      details        `json:"details"`
	Info         map[string]any `json:"model_info"`
	Capabilities []string       `json:"capabilities"`
	Modified     time.Time      `json:"modified_at"`
}

// Tags serves GET /api/tags.
func (s *Server) Tags(w http.ResponseWriter, r *http.Request) {
	list := []listed{}
	for _, k := range s.models.KnownTo(r.Context()) {
		m := k.Model
		if m == nil { // not loaded: its files have not been read
			m = &generate.Model{Name: k.Name, Parent: k.Parent, Created: k.Created}
		}
		list = append(list, listed{m.Name, m.Name, m.Created.UTC(), size(m), digest(m), detailsOf(m)})
	}
	wire.WriteJSON(w, http.StatusOK, tagList{list})
}

// never is the expiry time of a model that stays loaded.
var never = time.Date(2300, 1, 1, 0, 0, 0, 0, time.UTC)

// PS serves GET /api/ps: all loaded models.
func (s *Server) PS(w http.ResponseWriter, r *http.Request) {
	list := []running{}
	for _, k := range s.models.KnownTo(r.Context()) {
		m := k.Model
		if m == nil {
			continue
		}
		list = append(list, running{Name: m.Name, Model: m.Name, Size: size(m), Digest: digest(m), Details: detailsOf(m), Expires: never, Context: m.Limit()})
	}
	wire.WriteJSON(w, http.StatusOK, runningList{list})
}

// Version serves GET /api/version.
func (s *Server) Version(w http.ResponseWriter, _ *http.Request) {
	wire.WriteJSON(w, http.StatusOK, versions{apiVersion, s.version})
}

// Show serves POST /api/show.
func (s *Server) Show(w http.ResponseWriter, r *http.Request) {
	var m *generate.Model
	err := s.models.Read(r.Context(), r.Body, func(ctx context.Context, f *wire.Fields, first *generate.Model) (err error) {
		name, verbose := "", false
		f.String("name", &name) // the name of the field in older clients
		f.Bool("verbose", &verbose)
		if m = first; f.Err() == nil && name != "" && !f.Has("model") {
			m, err = s.models.Use(ctx, name)
			return err
		}
		return f.Err()
	})
	if err != nil {
		respond(w, err)
		return
	}
	d := detailsOf(m)
	out := shown{Details: d, Modified: m.Created.UTC(), Capabilities: capabilities(m), Info: info(m, d.Family)}
	for _, p := range params(m) {
		out.Parameters += fmt.Sprintf("%-30s %v\n", p.name, p.value)
	}
	out.Parameters = strings.TrimSuffix(out.Parameters, "\n")
	if config, err := m.TokenizerConfig(); err == nil {
		out.Template = templateOf(config)
	}
	wire.WriteJSON(w, http.StatusOK, out)
}

// capabilities returns the model's capabilities in Ollama's terms.
func capabilities(m *generate.Model) []string {
	list := []string{"completion"}
	if m.NoChat() == nil && m.Chat.ParsesCalls() {
		list = append(list, "tools")
	}
	if thinks(m) {
		list = append(list, "thinking")
	}
	return list
}

// thinks reports whether the chat template of the model supports reasoning.
func thinks(m *generate.Model) bool {
	return m.NoChat() == nil && m.Chat.Frame(text.ParseOptions{}).Close != ""
}

// info returns the model's figures under the names of GGUF metadata.
func info(m *generate.Model, family string) map[string]any {
	out := map[string]any{"general.architecture": family, family + ".context_length": m.Limit(), family + ".vocab_size": m.Vocab()}
	if n := parameters(m); n > 0 {
		out["general.parameter_count"] = n
	}
	if m.Config == nil {
		return out
	}
	for field, name := range map[string]string{"hidden_size": "embedding_length", "num_hidden_layers": "block_count",
		"num_attention_heads": "attention.head_count", "num_key_value_heads": "attention.head_count_kv", "intermediate_size": "feed_forward_length"} {
		if v := m.Config.Field(field); v != nil {
			out[family+"."+name] = v
		}
	}
	return out
}

func detailsOf(m *generate.Model) details {
	d := details{Parent: m.Parent, Format: "safetensors", Family: "unknown", Families: []string{}}
	if m.Config != nil {
		d.Family, d.Families = m.Config.ModelType, []string{m.Config.ModelType}
		if m.Config.DType != meta.NoDType {
			d.Quantization = m.Config.DType.String()
		}
	}
	if b := m.Dispatched(); b != nil {
		for _, f := range b.Checkpoint().Files() {
			if strings.HasSuffix(f.Name, ".gguf") {
				d.Format = "gguf"
			}
		}
	}
	if n := parameters(m); n > 0 {
		d.Size = shortCount(n)
	}
	return d
}

// parameters returns the number of the model's parameters, or 0 if it is unknown.
func parameters(m *generate.Model) int64 {
	if d := m.Dispatched(); d != nil {
		return d.Skeleton().Root.NumParameters()
	}
	return 0
}

// templateOf returns the chat template of a tokenizer_config.json, or "" if it has none.
func templateOf(config map[string]json.RawMessage) (template string) {
	if json.Unmarshal(config["chat_template"], &template) != nil {
		return ""
	}
	return template
}

// size returns the bytes of the model's weights.
func size(m *generate.Model) int64 {
	if d := m.Dispatched(); d != nil {
		return d.Checkpoint().Bytes()
	}
	return 0
}

// shortCount formats a number of parameters as Ollama does: 7.6B, 494.0M.
func shortCount(n int64) string {
	switch {
	case n >= 1e9:
		return fmt.Sprintf("%.1fB", float64(n)/1e9)
	case n >= 1e6:
		return fmt.Sprintf("%.2fM", float64(n)/1e6)
	}
	return fmt.Sprintf("%.2fK", float64(n)/1e3)
}

// digest returns an identifier of a model and its version. It is not a hash of the weights, so it
// reads none.
func digest(m *generate.Model) string {
	sum := sha256.Sum256(fmt.Append(nil, m.Name, size(m), m.Created.UnixNano()))
	return hex.EncodeToString(sum[:])
}

// instead says what to do instead of requests that change the server's models.
var instead = map[string]string{
	"/api/pull":   "pull it with `serve pull ORG/NAME` and serve it with --model",
	"/api/push":   "publish its folder with the hub's own tools",
	"/api/create": "models are folders of published files: serve one with --model, an adapter with --lora",
	"/api/copy":   "name it with --served-model-name",
	"/api/delete": "delete it with `serve rm ORG/NAME`",
}

// pulled is a line of the response of /api/pull.
type pulled struct {
	Status string `json:"status"`
}

// Pull serves POST /api/pull. Clients pull a model before they use it. Pull succeeds for a served
// model and downloads no others.
func (s *Server) Pull(w http.ResponseWriter, r *http.Request) {
	name, old, stream := "", "", true
	err := wire.ReadFields(r, func(f *wire.Fields) {
		f.String("model", &name)
		f.String("name", &old) // the name of the field in older clients
		f.Bool("stream", &stream)
	})
	if err != nil {
		respond(w, err)
		return
	}
	short := strings.TrimSuffix(cmp.Or(name, old), ":latest")
	if !slices.ContainsFunc(s.models.KnownTo(r.Context()), func(k generate.Known) bool { return k.Name == short || k.Name == cmp.Or(name, old) }) {
		s.NotOffered(w, r)
		return
	}
	done := pulled{"success"}
	if !stream {
		wire.WriteJSON(w, http.StatusOK, done)
		return
	}
	_ = wire.NewLines(w, func() any { return done }).Send(done) // the client may have disconnected
}

// NotOffered answers requests that change the server's models with 501 and what to do instead.
func (s *Server) NotOffered(w http.ResponseWriter, r *http.Request) {
	what := instead[r.URL.Path]
	if what == "" {
		what = "models are folders of published files: serve one with --model"
	}
	WriteError(w, &wire.Error{Kind: wire.NotOffered, Message: r.URL.Path + " is not supported over HTTP: " + what + "."})
}
