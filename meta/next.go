package meta

import (
	"errors"
	"strconv"
)

// A JoinSpec computes the input of the first block of a module for multi-token prediction (MTP):
// Project([EmbedNorm(e), HiddenNorm(h)]). Here e is the embedding of a token, and h the model's
// hidden state, after the final norm, at the preceding token.
type JoinSpec struct {
	EmbedNorm, HiddenNorm string // norms of hidden channels each
	Project               string // Linear of both together, [hidden, 2·hidden]
	Modules               int    // number of modules in the checkpoint that may run in sequence, see [NewNexts]; 0 means one
}

// NewNext builds the skeleton of a checkpoint's module for multi-token prediction: a model of one
// block, whose root has a [CausalLMSpec] with a Join. From the next token and the model's hidden
// state it predicts the token after the next one. If a checkpoint has several such modules,
// NewNext builds the first. The embedding and the head are the module's own if the checkpoint has
// them, otherwise those of the model.
//
// Errors are those of [New]. NewNext also returns a [*ConfigError] if the config or the header
// has no such module, or if it is not supported for the architecture.
func NewNext(cfg *Config, header CheckpointHeader) (*Model, error) {
	return newModel(cfg, header, 1)
}

// NewNexts builds the skeletons of all modules for multi-token prediction of a checkpoint, in the
// order of the tokens that they predict. A module after the first takes the hidden state of the
// preceding module, and the token after the one which that module took. NewNexts omits later
// modules that the checkpoint lacks, and layers that share the weights which join their inputs
// (Qwen3-Next). Errors are those of [NewNext].
func NewNexts(cfg *Config, header CheckpointHeader) ([]*Model, error) {
	first, err := NewNext(cfg, header)
	if err != nil {
		return nil, err
	}
	all := []*Model{first}
	for len(all) < first.Root.Spec.(*CausalLMSpec).Join.Modules {
		m, err := newModel(cfg, header, len(all)+1)
		if bad := new(*ConfigError); errors.As(err, bad) {
			break
		}
		if err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	return all, nil
}

// next builds the module for multi-token prediction: the weights that join its two inputs, a
// layer after the model's last one, a final norm, and the embedding and head if the file has its
// own.
func (d *deepseek) next(f *fields, b *Builder, layer func(b *Builder, index int)) {
	const count = "num_nextn_predict_layers"
	path, at := b.tree.textPath(), d.layers+b.tree.next-1
	number := strconv.Itoa(at)
	own := path + ".layers." + number
	n := f.count(count, 0, 0, maxLayers)
	if f.err() != nil {
		return
	}
	if n == 0 {
		f.fail(count, "is 0: the model has no layer for multi-token prediction")
		return
	}
	if !f.hasNext(b, count, own+".eh_proj.weight", n) {
		return
	}
	model, outer := b.textModel(d.class + "Model")
	b.Runs(KindCausalLM, &CausalLMSpec{
		Join:  &JoinSpec{EmbedNorm: path + ".enorm", HiddenNorm: path + ".hnorm", Project: path + ".eh_proj", Modules: n},
		Embed: path + ".embed_tokens", Layers: path + ".layers", Norm: path + ".shared_head.norm", Head: b.tree.headPath(),
		Vocab: d.vocab, Hidden: d.hidden, Context: d.rope.contextOf(d.context),
	})
	model.Published(own)
	embed := model.Embedding("embed_tokens", "Embedding", d.vocab, d.hidden)
	d.norms(model, "enorm", "hnorm")
	model.Linear("eh_proj", 2*d.hidden, d.hidden, false)
	d.norm(model.Child("shared_head", "SharedHead"), "norm", d.hidden)
	model.Published("")
	block := preNorm()
	scope := model.Child("layers", "ModuleList").Child(number, d.class+"DecoderLayer").Runs(KindBlock, &block)
	layer(scope, d.layers) // like the first: the config does not describe others
	for _, m := range scope.node.Children {
		if a, ok := m.Spec.(*AttentionSpec); ok {
			a.Layer = 0 // the module has its own KV cache
		}
	}
	outer.head(embed, d.hidden, d.vocab, d.tied, own+".shared_head.head.weight", b.tree.headPath()+".weight")
	b.Ignore("**") // the rest of the file belongs to the model
}

// hasNext reports whether the checkpoint has the tensor with which a module for multi-token
// prediction joins its inputs. If not, it fails the field that says how many modules there are.
func (f *fields) hasNext(b *Builder, count, tensor string, n int) bool {
	if b.tree.header == nil {
		return true
	}
	found, _ := b.tree.findAny([][]TensorSource{{{Tensor: tensor}}}, nil, false)
	if found == nil {
		f.fail(count, "is %d, but the checkpoint has no %s for multi-token prediction", n, tensor)
	}
	return found != nil
}

// mtpPath is the path of the module for multi-token prediction in files of Qwen3-Next and its
// descendants.
const mtpPath = "mtp"

// mtpCounts are the fields that may state the number of layers of that module.
var mtpCounts = []string{"mtp_num_hidden_layers", "num_mtp_layers", "num_nextn_predict_layers"}

// countMTP returns the number of layers of the module under mtpPath, and the field that states
// it. If there is no such field, it is 1 if the checkpoint has the module.
func (f *fields) countMTP(b *Builder) (n int, field string) {
	for _, field := range mtpCounts {
		if f.has(field) {
			return f.count(field, 0, 0, maxLayers), field
		}
	}
	if h := b.tree.header; h != nil {
		if _, _, found := h.Tensor(mtpPath + ".fc.weight"); found {
			n = 1
		}
	}
	return n, mtpCounts[0]
}

// causalLMWithMTP is causalLM for files that may have a module for multi-token prediction under
// mtpPath, with one final norm and the model's embedding and head. next adds the contents of its
// layer, which has full or windowed attention with a KV cache of its own.
func (d *decoder) causalLMWithMTP(f *fields, b *Builder, w wiring, layer func(b *Builder, index int), next func(b *Builder)) {
	n, field := f.countMTP(b)
	if b.tree.next > 0 {
		d.mtp(f, b, w, n, field, next)
		return
	}
	d.causalLM(f, b, w, layer)
	b.Ignore(mtpPath + ".**")
	if b.tree.header != nil || n == 0 || f.err() != nil {
		return
	}
	aside := *b.tree // what is counted in it is not part of the model
	scope := &Builder{tree: &aside, node: &Module{}, path: mtpPath + ".layers.0", inBlock: true}
	next(scope)
	bytes, hidden := int64(0), int64(d.hidden)
	for _, p := range scope.node.AllParams() {
		bytes += p.Bytes()
	}
	b.tree.unread = bytes*int64(n) + aside.dtype.Bytes(2*hidden*hidden+3*hidden)
}

// mtp builds the module of causalLMWithMTP with the first of its n layers.
func (d *decoder) mtp(f *fields, b *Builder, w wiring, n int, field string, next func(b *Builder)) {
	if f.err() != nil {
		return
	}
	if n == 0 {
		f.fail(field, "is 0 or missing: the model has no module for multi-token prediction")
		return
	}
	if f.bool("mtp_use_dedicated_embeddings", false) {
		f.fail("mtp_use_dedicated_embeddings", "is true: a module for multi-token prediction with an embedding of its own is not supported")
		return
	}
	if !f.hasNext(b, field, mtpPath+".fc.weight", n) {
		return
	}
	model, outer := b.textModel(or(w.modelClass, d.class+"Model"))
	embed := model.Embedding("embed_tokens", "Embedding", d.vocab, d.hidden)
	m := b.Child(mtpPath, d.class+"MultiTokenPredictor")
	b.Runs(KindCausalLM, &CausalLMSpec{
		Join:  &JoinSpec{EmbedNorm: mtpPath + ".pre_fc_norm_embedding", HiddenNorm: mtpPath + ".pre_fc_norm_hidden", Project: mtpPath + ".fc"},
		Embed: b.tree.textPath() + ".embed_tokens", Layers: mtpPath + ".layers", Norm: mtpPath + ".norm", Head: b.tree.headPath(),
		Vocab: d.vocab, Hidden: d.hidden, Context: d.rope.contextOf(d.context),
	})
	m.Linear("fc", 2*d.hidden, d.hidden, false)
	d.norms(m, "pre_fc_norm_embedding", "pre_fc_norm_hidden")
	block := w.block
	next(m.Child("layers", "ModuleList").Child("0", d.class+"DecoderLayer").Runs(KindBlock, &block))
	d.norm(m, "norm", d.hidden)
	outer.head(embed, d.hidden, d.vocab, d.tied, b.tree.headPath()+".weight")
	b.Ignore("**") // the rest of the file belongs to the model
}
