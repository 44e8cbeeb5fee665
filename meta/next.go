package meta

import "strconv"

// A JoinSpec makes what the first block of a module for multi-token prediction (MTP) takes of the
// embedding e of a token and of the hidden state h, after the final norm, of the model at the token
// before it: Project([EmbedNorm(e), HiddenNorm(h)]).
type JoinSpec struct {
	EmbedNorm, HiddenNorm string // norms
	Project               string // Linear of both together
}

// NewNext builds the skeleton of the module with which a checkpoint predicts a further token (multi-token
// prediction): a model of one block, whose root has a [CausalLMSpec] with a Join. It predicts the token
// behind the next one from the next one and the model's hidden state. If a checkpoint has several such
// modules, it is the first of them. The embedding and the head are the module's own where the checkpoint
// has them, else those of the model.
//
// Errors are those of [New]. It is a [*ConfigError] too if the config, or the header, has no such module or the
// architecture's is not supported.
func NewNext(cfg *Config, header CheckpointHeader) (*Model, error) {
	return newModel(cfg, header, true)
}

// next builds the module for multi-token prediction: a layer behind the model's last one, with what joins
// its two inputs, a final norm, and where the file has them an embedding and a head of its own.
func (d *deepseek) next(f *fields, b *Builder, layer func(b *Builder, index int)) {
	const count = "num_nextn_predict_layers"
	path, number := b.tree.textPath(), strconv.Itoa(d.layers)
	own := path + ".layers." + number
	n := f.count(count, 0, 0, maxLayers)
	if f.err() != nil {
		return
	}
	if n == 0 {
		f.fail(count, "is 0: the model has no layer for multi-token prediction")
		return
	}
	if b.tree.header != nil {
		if found, _ := b.tree.findAny([][]TensorSource{{{Tensor: own + ".eh_proj.weight"}}}, nil, false); found == nil {
			f.fail(count, "is %d, but the checkpoint has no %s.eh_proj.weight for multi-token prediction", n, own)
			return
		}
	}
	model, outer := b.textModel(d.class + "Model")
	b.Runs(KindCausalLM, &CausalLMSpec{
		Join:  &JoinSpec{EmbedNorm: path + ".enorm", HiddenNorm: path + ".hnorm", Project: path + ".eh_proj"},
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
	layer(scope, d.layers)
	for _, m := range scope.node.Children {
		if a, ok := m.Spec.(*AttentionSpec); ok {
			a.Layer = 0 // of its own KV cache
		}
	}
	outer.head(embed, d.hidden, d.vocab, d.tied, own+".shared_head.head.weight", b.tree.headPath()+".weight")
	b.Ignore("**") // the rest of the file is the model's
}
