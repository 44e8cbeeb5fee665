"""Changes of transformers' models: what Heft does not read is removed, and models that transformers lacks are registered."""
import re

from torch import nn
from transformers import AutoModelForCausalLM
from transformers.generation import GenerationMixin
from transformers.modeling_outputs import CausalLMOutputWithPast
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING, MODEL_FOR_MULTIMODAL_LM_MAPPING
from transformers.models.rwkv.modeling_rwkv import RwkvModel
from transformers.models.step3p7.modeling_step3p7 import Step3p7PreTrainedModel, Step3p7TextConfig, Step3p7TextModel

MODEL_FOR_CAUSAL_LM_MAPPING._model_mapping["mistral4"] = "Mistral4ForCausalLM"  # which transformers has among models of images
MODEL_FOR_MULTIMODAL_LM_MAPPING._model_mapping.update(audioflamingo3="AudioFlamingo3ForConditionalGeneration", musicflamingo="MusicFlamingoForConditionalGeneration")


def without_idle_experts(model):
    """Takes the weights of experts that do nothing out of LongCat's mixtures. Published files do not have them, and nothing reads them."""
    for m in model.modules():
        if hasattr(m, "identity_expert"):
            m.gate_up_proj = type(m.gate_up_proj)(m.gate_up_proj.detach()[:m.num_routed_experts].clone())
    return model


class Step3p5ForCausalLM(Step3p7PreTrainedModel, GenerationMixin):
    """The text model of Step 3.7 with a head, which transformers has within the model of images alone."""

    config: Step3p7TextConfig
    config_class = Step3p7TextConfig
    _tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}

    def __init__(self, config):
        super().__init__(config)
        self.model = Step3p7TextModel(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    def forward(self, input_ids=None, labels=None, output_hidden_states=False, **kwargs):
        out = self.model(input_ids, output_hidden_states=output_hidden_states, **kwargs)
        logits = self.lm_head(out.last_hidden_state)
        loss = None if labels is None else self.loss_function(logits=logits, labels=labels, vocab_size=self.config.vocab_size)
        return CausalLMOutputWithPast(loss=loss, logits=logits, past_key_values=out.past_key_values, hidden_states=out.hidden_states)


AutoModelForCausalLM.register(Step3p7TextConfig, Step3p5ForCausalLM, exist_ok=True)


def rescaled(model, *args, **kwargs):
    """RWKV's halves of hidden states without a change of the weights, which would be saved: what a block adds is divided where it is made."""
    made(model, *args, **kwargs)
    model.layers_are_rescaled, every = True, model.config.rescale_every
    for i, block in enumerate(model.blocks):
        if every > 0:
            for linear in block.attention.output, block.feed_forward.value:
                linear.register_forward_hook(lambda _, __, y, by=2 ** (i // every): y / by)


made, RwkvModel.__init__, RwkvModel._rescale_layers = RwkvModel.__init__, rescaled, lambda model: None


def step3p5_published(name, t):
    """What published files have of a tensor: the mixture under moe, its gates apart, and the shared expert beside it."""
    for ours, theirs in ((".mlp.gate.e_score_correction_bias", ".moe.router_bias"), (".mlp.gate.", ".moe.gate."), (".mlp.shared_experts.", ".share_expert."),
                         (".mlp.experts.down_proj", ".moe.down_proj.weight")):
        name = name.replace(ours, theirs)
    if not name.endswith(".mlp.experts.gate_up_proj"):
        return [(name, t)]
    name = name.replace(".mlp.experts.gate_up_proj", ".moe.")
    return [(name + part + "_proj.weight", half.contiguous()) for part, half in zip(("gate", "up"), t.chunk(2, dim=1))]


def dory_published(name):
    """A tensor's name in published files, where attention and MLP are two layers."""
    for part, second, theirs in (("self_attn", 0, "mixer"), ("mlp", 1, "mixer"), ("lambda_1", 0, "attn_alpha"), ("lambda_2", 1, "mlp_alpha")):
        name = re.sub(rf"\.layers\.(\d+)\.{part}\b", lambda m: f".layers.{2 * int(m[1]) + second}.{theirs}", name)
    return name


MANY_PARTS = ("audioflamingo3", "cosmos3_omni", "deepseek_vl_hybrid", "fun_asr_nano", "glmasr", "granite4_vision", "granite_docling", "granite_speech", "granite_speech_plus", "idefics2", "janus",
              "moss_transcribe_diarize", "musicflamingo", "omniasr", "qwen3_asr", "vibevoice_asr")  # of which fixtures have the smallest tensors alone


def is_of_images(name):
    """Whether a weight of ERNIE's text model is one that no text reaches, and Heft's tree has not."""
    return ".vision_moe." in name and not name.endswith(".e_score_correction_bias")


def without_experts_of_images(model):
    for path, m in list(model.named_modules()):
        if path.endswith(".vision_moe"):
            del m._modules["experts"], m.gate._parameters["weight"]
    return model


OF_SOUND = ("audioflamingo3", "fun_asr_nano", "glmasr", "granite_speech", "granite_speech_plus", "moss_transcribe_diarize", "musicflamingo", "omniasr", "qwen2_audio", "qwen3_asr", "vibevoice_asr",
            "voxtral")


def without_layers_of_images(model):
    """Takes the layers out of Mllama that texts pass by, and its list of them."""
    text = getattr(getattr(model, "model", None), "language_model", None)
    seeing = set(getattr(text, "cross_attention_layers", ()))
    if seeing:
        text.cross_attention_layers = []
        for i in seeing & set(range(len(text.layers))):
            del text.layers._modules[str(i)]
    return model


def with_stacked_experts(model):
    """Gives DBRX's experts the stacks that other families have, as Heft's tree does, instead of three matrices below one another."""
    for m in model.modules():
        if type(m).__name__ == "DbrxExpertGLU":
            n, inner, hidden = m.moe_num_experts, m.ffn_hidden_size, m.hidden_size
            for name, shape in (("gate_up_proj", (n, 2 * inner, hidden)), ("down_proj", (n, hidden, inner))):
                m.register_parameter(name, type(m.w1)(m.w1.new_empty(shape)))
            del m.w1, m.v1, m.w2
    return model


def is_text_within(config):
    """Whether the text model is a part of the model. Phi-4-multimodal has its other parts within its text model."""
    return config["model_type"] in ("emu3", "fuyu", *OF_SOUND) or "vision_config" in config and config["model_type"] != "phi4_multimodal"
