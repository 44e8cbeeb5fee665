package meta

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// A wrapper is a model of several inputs around a text model of one of the architectures. Heft
// reads the text model and leaves the other parts, such as a vision tower, in the file.
type wrapper struct {
	modelType string
	class     string // of the root
	model     string // class of the root's child "model"; "" if child is a causal language model below the root
	child     string // name of the text model below it
	text      string // model_type of the text model where its config states none
	fixed     bool   // text is the type whatever the text model's config states
	tied      bool   // default of tie_word_embeddings
	tiedText  bool   // the field counts in the text model's config as well
}

// wrappers returns the table of supported wrappers. If the text model of a wrapper has an
// architecture of its own, that is a row of architectures without a class.
func wrappers() []wrapper {
	const text = "language_model"
	return append(slices.Concat(qwenWrappers(text), gemmaWrappers(text), llavaWrappers(text), soundWrappers(text)), []wrapper{
		{"apertus1p5", "Apertus1p5ForConditionalGeneration", "Apertus1p5Model", text, "apertus1p5_text", false, false, false},
		{"aria", "AriaForConditionalGeneration", "AriaModel", text, "aria_text", true, false, false},
		{"aya_vision", "AyaVisionForConditionalGeneration", "AyaVisionModel", text, "cohere2", false, true, false},
		{"cohere2_vision", "Cohere2VisionForConditionalGeneration", "Cohere2VisionModel", text, "cohere2", false, true, false},
		{"cohere_compass", "CohereCompassForConditionalGeneration", "CohereCompassModel", text, "cohere_compass_text", true, false, false},
		{"cosmos3_omni", "Cosmos3OmniForConditionalGeneration", "Cosmos3OmniModel", text, "qwen3_vl_text", false, false, false},
		{"deepseek_vl", "DeepseekVLForConditionalGeneration", "DeepseekVLModel", text, "llama", false, true, false},
		{"deepseek_vl_hybrid", "DeepseekVLHybridForConditionalGeneration", "DeepseekVLHybridModel", text, "llama", false, true, false},
		{"deepseek_ocr2", "DeepseekOcr2ForConditionalGeneration", "DeepseekOcr2Model", text, "deepseek_ocr2_text", true, false, false},
		{"dots3_note", "Dots3NoteForConditionalGeneration", "Dots3NoteModel", text, "dots3_note_text", true, false, false},
		{"emu3", "Emu3ForConditionalGeneration", "Emu3Model", "text_model", "emu3_text_model", true, false, false},
		{"ernie4_5_moe_vl", "Ernie4_5_VLMoeForConditionalGeneration", "Ernie4_5_VLMoeModel", text, "ernie4_5_vl_moe_text", true, true, false}, // as published
		{"ernie4_5_vl_moe", "Ernie4_5_VLMoeForConditionalGeneration", "Ernie4_5_VLMoeModel", text, "ernie4_5_vl_moe_text", true, true, false},
		{"exaone4_5", "Exaone4_5_ForConditionalGeneration", "Exaone4_5_Model", text, "exaone4", true, false, false},
		{"fast_vlm", "FastVlmForConditionalGeneration", "FastVlmModel", text, "qwen2", false, false, true},
		{"fuyu", "FuyuForCausalLM", "FuyuModel", text, "persimmon", false, false, false},
		{"got_ocr2", "GotOcr2ForConditionalGeneration", "GotOcr2Model", text, "qwen2", false, true, false},
		{"granite_docling", "GraniteDoclingForConditionalGeneration", "GraniteDoclingModel", "text_model", "granite_docling_text", true, true, false},
		{"granite4_vision", "Granite4VisionForConditionalGeneration", "Granite4VisionModel", text, "granite4_vision_text", true, false, false},
		{"hunyuan_vl", "HunYuanVLForConditionalGeneration", "HunYuanVLModel", text, "hunyuan_vl_text", true, true, true},
		{"hy_v4_vl", "HYV4VLForConditionalGeneration", "HYV4VLModel", text, "hy_v4_vl_text", true, false, false},
		{"hyperclovax_vision_v2", "HyperCLOVAXVisionV2ForConditionalGeneration", "HyperCLOVAXVisionV2Model", text, "hyperclovax", false, true, false},
		{"idefics2", "Idefics2ForConditionalGeneration", "Idefics2Model", "text_model", "mistral", false, false, false},
		{"idefics3", "Idefics3ForConditionalGeneration", "Idefics3Model", "text_model", "llama", false, false, false},
		{"inkling_mm_model", "InklingForConditionalGeneration", "InklingModel", text, "inkling_text", true, false, false},
		{"internvl", "InternVLForConditionalGeneration", "InternVLModel", text, "qwen2", false, true, false},
		{"janus", "JanusForConditionalGeneration", "JanusModel", text, "llama", false, true, false},
		{"kimi_k25", "Kimi_K25ForConditionalGeneration", "Kimi_K25Model", text, "deepseek_v3", false, true, false},
		{"lfm2_vl", "Lfm2VlForConditionalGeneration", "Lfm2VlModel", text, "lfm2", false, true, false},
		{"lfm3_vl", "Lfm3VlForConditionalGeneration", "Lfm3VlModel", text, "lfm3", false, true, false},
		{"lighton_ocr", "LightOnOcrForConditionalGeneration", "LightOnOcrModel", text, "qwen3", false, true, false},
		{"llama4", "Llama4ForConditionalGeneration", "", text, "llama4_text", false, false, false},
		{"minicpm_ocr", "MiniCPMOcrForConditionalGeneration", "MiniCPMOcrModel", text, "qwen3_5_text", false, true, false},
		{"minicpmv4_6", "MiniCPMV4_6ForConditionalGeneration", "MiniCPMV4_6Model", text, "qwen3_5_text", false, false, false},
		{"minicpmv4_7", "MiniCPMV4_7ForConditionalGeneration", "MiniCPMV4_7Model", text, "qwen3_5_text", false, false, false},
		{"minimax_m3_vl", "MiniMaxM3SparseForConditionalGeneration", "MiniMaxM3VLModel", text, "minimax_m3_vl_text", true, false, true},
		{"mistral3", "Mistral3ForConditionalGeneration", "Mistral3Model", text, "mistral", false, true, false},
		{"mistral_large4", "MistralLarge4ForConditionalGeneration", "MistralLarge4Model", text, "mistral_large4_text", true, false, false},
		{"mllama", "MllamaForConditionalGeneration", "MllamaModel", text, "mllama_text_model", true, false, false},
		{"molmo2", "Molmo2ForConditionalGeneration", "Molmo2Model", text, "molmo2_text", true, false, false},
		{"muse_glimmer", "MuseGlimmerForConditionalGeneration", "MuseGlimmerModel", text, "muse_glimmer_text", true, false, false},
		{"nemotron_h_omni", "NemotronH_Omni_Reasoning_V3", "", text, "nemotron_h", false, false, false},
		{"ovis2", "Ovis2ForConditionalGeneration", "Ovis2Model", text, "qwen2", false, true, false},
		{"NemotronH_Nano_Omni_Reasoning_V3", "NemotronH_Omni_Reasoning_V3", "", text, "nemotron_h", false, false, false}, // as published
		{"paddleocr_vl", "PaddleOCRVLForConditionalGeneration", "PaddleOCRVLModel", text, "paddleocr_vl_text", true, true, true},
		{"perception_lm", "PerceptionLMForConditionalGeneration", "PerceptionLMModel", text, "llama", false, false, true},
		{"qianfan_ocr", "QianfanOCRForConditionalGeneration", "QianfanOCRModel", text, "qwen3", false, false, false},
		{"smolvlm", "SmolVLMForConditionalGeneration", "SmolVLMModel", "text_model", "llama", false, false, false},
		{"step3p7", "Step3p7ForConditionalGeneration", "Step3p7Model", text, "step3p5", true, false, false},
		{"video_llama_3", "VideoLlama3ForConditionalGeneration", "VideoLlama3Model", text, "qwen2", false, false, true},
		{"video_llava", "VideoLlavaForConditionalGeneration", "VideoLlavaModel", text, "llama", false, false, false},
		{"vlm", "HyperCLOVAXVisionV2ForConditionalGeneration", "HyperCLOVAXVisionV2Model", text, "hyperclovax", true, true, false}, // as published
	}...)
}

// qwenWrappers returns Qwen's models in the table.
func qwenWrappers(text string) []wrapper {
	return []wrapper{
		{"qwen2_5_omni", "Qwen2_5OmniForConditionalGeneration", "Qwen2_5OmniThinkerModel", text, "qwen2_5_omni_text", true, false, false},
		{"qwen2_5_omni_thinker", "Qwen2_5OmniThinkerForConditionalGeneration", "Qwen2_5OmniThinkerModel", text, "qwen2_5_omni_text", true, false, false},
		{"qwen2_5_vl", "Qwen2_5_VLForConditionalGeneration", "Qwen2_5_VLModel", text, "qwen2_5_vl_text", true, false, true},
		{"qwen2_vl", "Qwen2VLForConditionalGeneration", "Qwen2VLModel", text, "qwen2_vl_text", true, false, true},
		{"qwen3_5", "Qwen3_5ForConditionalGeneration", "Qwen3_5Model", text, "qwen3_5_text", true, false, false},
		{"qwen3_5_moe", "Qwen3_5MoeForConditionalGeneration", "Qwen3_5MoeModel", text, "qwen3_5_moe_text", true, false, false},
		{"qwen3_omni_moe", "Qwen3OmniMoeForConditionalGeneration", "Qwen3OmniMoeThinkerModel", text, "qwen3_omni_moe_text", true, false, false},
		{"qwen3_omni_moe_thinker", "Qwen3OmniMoeThinkerForConditionalGeneration", "Qwen3OmniMoeThinkerModel", text, "qwen3_omni_moe_text", true, false, false},
		{"qwen3_vl", "Qwen3VLForConditionalGeneration", "Qwen3VLModel", text, "qwen3_vl_text", true, false, false},
		{"qwen3_vl_moe", "Qwen3VLMoeForConditionalGeneration", "Qwen3VLMoeModel", text, "qwen3_vl_moe_text", true, false, false},
		{"qwen4_exp", "Qwen4ExpForConditionalGeneration", "Qwen4ExpModel", text, "qwen4_exp_text", true, false, false},
	}
}

// gemmaWrappers returns Gemma's and GLM's models in the table.
func gemmaWrappers(text string) []wrapper {
	return []wrapper{
		{"gemma3", "Gemma3ForConditionalGeneration", "Gemma3Model", text, "gemma3_text", false, true, false},
		{"gemma3n", "Gemma3nForConditionalGeneration", "Gemma3nModel", text, "gemma3n_text", false, true, false},
		{"gemma4", "Gemma4ForConditionalGeneration", "Gemma4Model", text, "gemma4_text", false, true, false},
		{"gemma4_unified", "Gemma4UnifiedForConditionalGeneration", "Gemma4UnifiedModel", text, "gemma4_unified_text", false, true, false},
		{"glm46v", "Glm46VForConditionalGeneration", "Glm46VModel", text, "glm4v_text", false, false, false},
		{"glm4v", "Glm4vForConditionalGeneration", "Glm4vModel", text, "glm4v_text", true, false, true},
		{"glm4v_moe", "Glm4vMoeForConditionalGeneration", "Glm4vMoeModel", text, "glm4v_moe_text", true, false, true},
		{"glm_ocr", "GlmOcrForConditionalGeneration", "GlmOcrModel", text, "glm_ocr_text", true, false, true},
		{"glmga", "Glm46VForConditionalGeneration", "Glm46VModel", text, "glm4v_text", false, false, false},
	}
}

// soundWrappers returns models of text and sound in the table.
func soundWrappers(text string) []wrapper {
	return []wrapper{
		{"audioflamingo3", "AudioFlamingo3ForConditionalGeneration", "AudioFlamingo3Model", text, "qwen2", false, false, false},
		{"fun_asr_nano", "FunAsrNanoForConditionalGeneration", "FunAsrNanoModel", text, "qwen3", false, true, false},
		{"glmasr", "GlmAsrForConditionalGeneration", "GlmAsrModel", text, "llama", false, true, false},
		{"granite_speech", "GraniteSpeechForConditionalGeneration", "GraniteSpeechModel", text, "granite", false, true, false},
		{"granite_speech_plus", "GraniteSpeechPlusForConditionalGeneration", "GraniteSpeechPlusModel", text, "granite", false, true, false},
		{"moss_transcribe_diarize", "MossTranscribeDiarizeForConditionalGeneration", "MossTranscribeDiarizeModel", text, "qwen3", false, true, false},
		{"musicflamingo", "MusicFlamingoForConditionalGeneration", "MusicFlamingoModel", text, "qwen2", false, false, false},
		{"omniasr", "OmniASRForConditionalGeneration", "OmniASRModel", text, "llama", false, false, false},
		{"qwen2_audio", "Qwen2AudioForConditionalGeneration", "Qwen2AudioModel", text, "qwen2", false, false, false},
		{"qwen3_asr", "Qwen3ASRForConditionalGeneration", "Qwen3ASRModel", text, "qwen3", false, true, false},
		{"vibevoice_asr", "VibeVoiceAsrForConditionalGeneration", "VibeVoiceAsrModel", text, "qwen2", false, false, false},
		{"voxtral", "VoxtralForConditionalGeneration", "VoxtralModel", text, "llama", false, false, false},
	}
}

// llavaWrappers returns LLaVA and its successors in the table.
func llavaWrappers(text string) []wrapper {
	return []wrapper{
		{"llava", "LlavaForConditionalGeneration", "LlavaModel", text, "llama", false, false, true},
		{"llava_next", "LlavaNextForConditionalGeneration", "LlavaNextModel", text, "llama", false, false, false},
		{"llava_next_video", "LlavaNextVideoForConditionalGeneration", "LlavaNextVideoModel", text, "llama", false, false, true},
		{"llava_onevision", "LlavaOnevisionForConditionalGeneration", "LlavaOnevisionModel", text, "qwen2", false, false, true},
		{"vipllava", "VipLlavaForConditionalGeneration", "VipLlavaModel", text, "llama", false, false, false},
	}
}

func lookupWrapper(modelType string) *wrapper {
	for _, w := range wrappers() {
		if w.modelType == modelType {
			return &w
		}
	}
	return nil
}

// textFields returns the fields of the text model: those of text_config, or of the whole config,
// as in published Qwen2-VL. Fields that the whole config determines replace those of text_config.
func (w *wrapper) textFields(whole *fields) *fields {
	whole = whole.thinker()
	text := whole.object("text_config")
	if text == nil && w.text == "nemotron_h" {
		text = whole.object("llm_config") // as published
	}
	if text == nil {
		text = whole
	}
	values := maps.Clone(text.values)
	tied := whole.bool("tie_word_embeddings", w.tied)
	if w.model == "" { // the text model decides
		tied = text.bool("tie_word_embeddings", w.tied)
	}
	if w.tiedText { // where there is no text_config, the field is the text model's
		tied = (text == whole && w.tied) || (text != whole && tied) || text.bool("tie_word_embeddings", w.tied)
	}
	if whole.has("tie_embedding") { // LFM2-VL's other name of the field
		tied = whole.bool("tie_embedding", false)
	}
	if w.model != "" {
		delete(values, "tie_embedding")
	}
	if w.modelType == "glmasr" && values["rope_parameters"] == nil && values["rope_scaling"] == nil {
		values["rope_theta"] = json.Number("10000") // transformers adds rope_parameters, which come before rope_theta
	}
	w.completeText(values, text == whole)
	values["tie_word_embeddings"] = tied
	values["own_eos_token_id"] = text.values["eos_token_id"] // which ends the n-grams of Qwen4-Exp
	for _, name := range []string{"bos_token_id", "eos_token_id", "pad_token_id", "dtype", "torch_dtype", "quantization_config", "quantization"} {
		if whole.has(name) {
			values[name] = whole.values[name]
		}
	}
	return &fields{at: text.at, values: values, errs: whole.errs}
}

// thinker returns the fields of thinker_config, for models that answer in speech, completed with
// the fields of the whole config f. Without thinker_config it returns f.
func (f *fields) thinker() *fields {
	t := f.object("thinker_config")
	if t == nil {
		return f
	}
	values := maps.Clone(t.values)
	for _, name := range []string{"bos_token_id", "eos_token_id", "pad_token_id", "dtype", "torch_dtype", "quantization_config", "quantization"} {
		if f.has(name) && !t.has(name) {
			values[name] = f.values[name]
		}
	}
	return &fields{at: t.at, values: values, errs: f.errs}
}

// textType returns the model_type of the text model.
func (w *wrapper) textType(text *fields) string {
	if w.fixed || text.at == "" {
		return w.text
	}
	return text.text("model_type", w.text)
}

// textPath returns the path of the text model in the tree.
func (t *tree) textPath() string {
	if t.wrapper == nil {
		return "model"
	}
	if t.wrapper.model == "" {
		return t.wrapper.child + ".model"
	}
	return "model." + t.wrapper.child
}

// headPath returns the path of the head in the tree.
func (t *tree) headPath() string {
	if t.wrapper != nil && t.wrapper.model == "" {
		return t.wrapper.child + ".lm_head"
	}
	return "lm_head"
}

// textModel adds the text model, which has the given class, below the root b. It returns the
// scopes of the text model and of the head.
func (b *Builder) textModel(class string) (model, outer *Builder) {
	w := b.tree.wrapper
	switch {
	case w == nil:
		return b.Child("model", class), b
	case w.model == "":
		outer = b.Child(w.child, b.tree.textClass)
		return outer.Child("model", class), outer
	}
	return b.Child("model", w.model).Child(w.child, class), b
}

// A Rename is another beginning that a checkpoint has for names of a tree's tensors.
type Rename struct{ Tree, File string }

// Apply returns the checkpoint's name for a name of the tree.
func (r Rename) Apply(name string) string {
	if rest, ok := strings.CutPrefix(name, r.Tree); ok {
		return r.File + rest
	}
	return name
}

// renames returns the ways in which published files name the tensors of a wrapper's text model.
func (w *wrapper) renames() []Rename {
	if w == nil {
		return nil
	}
	if w.model == "" {
		return []Rename{{w.child + ".", ""}} // a text model alone
	}
	tree := "model." + w.child + "."
	return []Rename{
		{tree, w.child + ".model."}, // LLaVA and most others
		{tree, ""},                  // Cosmos 3
		{"lm_head.", w.child + ".lm_head."},
		{tree, "model."},                       // Qwen2-VL
		{tree, "model." + w.child + ".model."}, // files saved by transformers 4.52
		{"lm_head.", "model." + w.child + ".lm_head."},
		{tree, "thinker.model."}, // Qwen's models that answer in speech
		{"lm_head.", "thinker.lm_head."},
	}
}

// textNames returns the prefixes of the text model's tensors in files.
func (w *wrapper) textNames() []string {
	if w == nil {
		return nil
	}
	names := []string{w.child + ".", "model." + w.child + ".", "lm_head.", "thinker.model.", "thinker.lm_head."}
	for _, part := range []string{"embed_tokens.", "layers.", "norm."} {
		names = append(names, part, "model."+part)
	}
	return append(names, "tok_embeddings.", "lerope.", "output.", "model.llm.", "model.transformer.") // Mistral's own, Inkling's and Molmo's
}

// OtherPart reports whether a checkpoint's tensor belongs to a part of the model other than the
// text model, such as a vision tower. Heft does not use these parts.
func (m *Model) OtherPart(tensor string) bool {
	for _, prefix := range m.textNames {
		if strings.HasPrefix(tensor, prefix) {
			return false
		}
	}
	return m.textNames != nil
}

// IsWrapper reports whether models of a type also have inputs other than text, whose parts Heft
// does not use.
func IsWrapper(modelType string) bool { return lookupWrapper(modelType) != nil }
