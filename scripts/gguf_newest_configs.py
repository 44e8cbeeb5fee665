"""Configs of the newest models of make-gguf-converted.py, in the form of gguf_converted_configs.py, which adds them to its own."""
from safetensors.torch import load_file, save_file

import latest_configs  # registers Step 3.5
from latest_configs import step3p5_published


def newest(BASE, EXPERTS, DELTA, MLA, DEEP, INDEXER, YARN, ROPE):
    """The models, as MODELS of gguf_converted_configs.py, whose parts of configs the arguments are."""
    HIDDEN = BASE["hidden_size"]
    SLIDING = ["full_attention", "sliding_attention", "sliding_attention"]
    LLAMA3 = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=32)
    STEP = dict(BASE, model_type="step3p5", num_hidden_layers=3, head_dim=16, rms_norm_eps=1e-5, layer_types=SLIDING, sliding_window=8, num_sliding_attention_heads=6, n_routed_experts=4,
                num_experts_per_tok=2, moe_intermediate_size=16, share_expert_dim=24, moe_router_scaling_factor=3.0, swiglu_limits=[0.0, 0.5, 0.0], swiglu_limits_shared=[0.0, 0.0, 0.4],
                mlp_layer_types=["dense", "sparse", "sparse"])
    STEP_FILE = dict(num_attention_groups=2, attention_other_setting=dict(num_attention_heads=6, num_attention_groups=2), moe_num_experts=4, moe_top_k=2, moe_layers_enum="1,2",
                     partial_rotary_factors=[0.5, 1.0, 1.0], rope_theta=[50000.0, 1000.0, 1000.0], layer_types=SLIDING, norm_expert_weight=True)
    TYPED = lambda full: dict(full_attention=dict(full, rope_theta=50000.0, partial_rotary_factor=0.5), sliding_attention=dict(rope_type="default", rope_theta=1000.0, partial_rotary_factor=1.0))
    LAGUNA = dict(BASE, **EXPERTS, model_type="laguna", num_hidden_layers=3, head_dim=16, layer_types=SLIDING, sliding_window=8, num_attention_heads_per_layer=[4, 6, 2],
                  shared_expert_intermediate_size=24, moe_routed_scaling_factor=2.5, mlp_layer_types=["dense", "sparse", "sparse"])
    LING = dict(BASE, **dict(MLA, **DEEP), model_type="bailing_hybrid", num_local_experts=4, num_hidden_layers=4, head_dim=8, short_conv_kernel_size=4, rope_theta=10000.0, kda_safe_gate=True, kda_lower_bound=-5.0, layer_group_size=2, num_mtp_layers=0)
    return {
        "step35": (dict(STEP, rope_parameters=TYPED(dict(rope_type="default"))), dict(config=STEP_FILE, published=as_step, without=["rope_parameters"], raw=True)),
        "step35-llama3": (dict(STEP, rope_parameters=TYPED(LLAMA3)),
                          dict(config=dict(STEP_FILE, rope_scaling=LLAMA3), published=as_step, without=["rope_parameters"], raw=True)),
        "laguna": (dict(LAGUNA, num_hidden_layers=5, layer_types=SLIDING + ["sliding_attention", "full_attention"], num_attention_heads_per_layer=[4, 6, 2, 2, 2],
                        mlp_layer_types=["dense", "dense", "sparse", "dense", "sparse"], gating="per-head", rope_parameters=TYPED(dict(YARN))), {}),
        "laguna-channels": (dict(LAGUNA, gating="per-element", rope_parameters=TYPED(dict(rope_type="default"))), {}),
        "mistral4": (dict(BASE, **dict(MLA, **DEEP), model_type="mistral4", num_hidden_layers=3, head_dim=16,
                          rope_parameters=dict(YARN, mscale=1.0, mscale_all_dim=1.0, llama_4_scaling_beta=0.1, original_max_position_embeddings=8)),
                     dict(config=dict(architectures=["Mistral3ForConditionalGeneration"]))),
        "bailingmoe3": (dict(LING), dict(config=dict(no_kda_lora=True, gated_attention_proj_granularity_type="head_wise", architectures=["BailingMoeV3ForCausalLM"], num_experts=4, num_shared_experts=1, moe_shared_expert_intermediate_size=16, rope_theta=10000.0, score_function="sigmoid", norm_topk_prob=True, n_group=1, topk_group=1, num_experts_per_tok=2),
                                         raw=True)),
        "dbrx": (dict(model_type="dbrx", vocab_size=BASE["vocab_size"], d_model=HIDDEN, n_heads=4, n_layers=2, max_seq_len=128, attn_config=dict(clip_qkv=2.0, kv_n_heads=2, rope_theta=10000.0),
                      ffn_config=dict(ffn_hidden_size=16, moe_num_experts=4, moe_top_k=2)), dict(raw=True)),
        "granite-swa": (dict(BASE, model_type="granite_swa", num_hidden_layers=4, sliding_window=8, embedding_multiplier=6.0, logits_scaling=2.0, residual_multiplier=0.5,
                             attention_multiplier=0.25, rms_norm_eps=1e-5), {}),
        "granitemoe-swa": (dict(BASE, model_type="granitemoe_swa", num_hidden_layers=4, sliding_window=8, embedding_multiplier=6.0, logits_scaling=2.0, residual_multiplier=0.5,
                                attention_multiplier=0.25, rms_norm_eps=1e-5, num_local_experts=4, num_experts_per_tok=2, intermediate_size=16, shared_intermediate_size=24), {}),
    }


def as_step(folder):
    """Gives tensors their published names."""
    file = folder / "model.safetensors"
    save_file(dict(pair for name, t in load_file(file).items() for pair in step3p5_published(name, t)), file, metadata={"format": "pt"})
