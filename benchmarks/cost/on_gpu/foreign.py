"""Networks of timm, torchvision and transformers, by key."""

from __future__ import annotations

from typing import Any

_TIMM: list[str] = """
resnetv2_50 ecaresnet50d res2net50_26w_4s hrnet_w18 dla60 dpn68 ghostnet_100 mixnet_s tf_efficientnetv2_b0 rexnet_100
mobilenetv4_conv_small fastvit_t8 edgenext_small mobilevit_s levit_192 deit_small_patch16_224 cait_xxs24_224 pit_s_224
twins_svt_small pvt_v2_b1 poolformer_s12 mixer_b16_224 resmlp_12_224 gmlp_s16_224 convmixer_768_32 coatnet_0_rw_224
xcit_tiny_12_p16_224 beit_base_patch16_224 volo_d1_224 focalnet_tiny_srf davit_tiny dm_nfnet_f0 skresnet34
seresnext26t_32x4d cspdarknet53 ese_vovnet19b_dw inception_resnet_v2 xception41 selecsls42b repvgg_a2 gernet_m
hgnet_tiny inception_next_tiny caformer_s18 tiny_vit_5m_224 efficientformer_l1 nextvit_small mambaout_tiny starnet_s1
tresnet_m halonet26t botnet26t_256 eca_nfnet_l0 resnest26d vit_base_patch16_224 vgg16_bn inception_v4
""".split()  # noqa: SIM905
_TORCHVISION: list[str] = """
squeezenet1_1 mnasnet1_0 regnet_y_1_6gf swin_t swin_v2_t maxvit_t efficientnet_v2_s vit_b_16 densenet169 fcn_resnet50
deeplabv3_mobilenet_v3_large lraspp_mobilenet_v3_large r3d_18
""".split()  # noqa: SIM905
#: Configuration class, base model class, shape of a sample, and what differs from the defaults.
_TRANSFORMERS: dict[str, tuple[str, str, tuple[int, ...], dict[str, Any]]] = {
    "bert": ("BertConfig", "BertModel", (128,), {}),
    "distilbert": ("DistilBertConfig", "DistilBertModel", (256,), {}),
    "roberta": ("RobertaConfig", "RobertaModel", (128,), {"vocab_size": 50265, "max_position_embeddings": 514}),
    "albert": (
        "AlbertConfig",
        "AlbertModel",
        (128,),
        {"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072},
    ),
    "electra": ("ElectraConfig", "ElectraModel", (128,), {}),
    "deberta_v2": (
        "DebertaV2Config",
        "DebertaV2Model",
        (128,),
        {
            "hidden_size": 768,
            "num_hidden_layers": 12,
            "num_attention_heads": 12,
            "intermediate_size": 3072,
            "vocab_size": 32000,
            "relative_attention": True,
            "position_buckets": 64,
            "pos_att_type": ["p2c", "c2p"],
        },
    ),
    "gpt2": ("GPT2Config", "GPT2LMHeadModel", (256,), {}),
    "opt": ("OPTConfig", "OPTModel", (256,), {}),
    "gpt_neo": (
        "GPTNeoConfig",
        "GPTNeoModel",
        (256,),
        {"hidden_size": 768, "num_layers": 6, "num_heads": 12, "attention_types": [[["global", "local"], 3]]},
    ),
    "bloom": (
        "BloomConfig",
        "BloomModel",
        (256,),
        {"hidden_size": 1024, "n_layer": 12, "n_head": 16, "vocab_size": 32000},
    ),
    "llama": (
        "LlamaConfig",
        "LlamaForCausalLM",
        (512,),
        {
            "hidden_size": 1024,
            "intermediate_size": 2816,
            "num_hidden_layers": 12,
            "num_attention_heads": 16,
            "num_key_value_heads": 4,
            "use_cache": False,
        },
    ),
    "qwen2": (
        "Qwen2Config",
        "Qwen2ForCausalLM",
        (512,),
        {
            "hidden_size": 896,
            "intermediate_size": 4864,
            "num_hidden_layers": 12,
            "num_attention_heads": 14,
            "num_key_value_heads": 2,
            "vocab_size": 50000,
            "use_cache": False,
        },
    ),
    "t5_encoder": ("T5Config", "T5EncoderModel", (256,), {}),
    "vit": ("ViTConfig", "ViTModel", (3, 224, 224), {}),
    "dinov2": (
        "Dinov2Config",
        "Dinov2Model",
        (3, 224, 224),
        {"image_size": 224, "hidden_size": 384, "num_attention_heads": 6, "patch_size": 14},
    ),
    "swin": ("SwinConfig", "SwinModel", (3, 224, 224), {}),
    "segformer": ("SegformerConfig", "SegformerForSemanticSegmentation", (3, 256, 256), {}),
    "wav2vec2": ("Wav2Vec2Config", "Wav2Vec2Model", (32000,), {"apply_spec_augment": False, "layerdrop": 0.0}),
    "clip_vision": ("CLIPVisionConfig", "CLIPVisionModel", (3, 224, 224), {}),
    "mobilebert": ("MobileBertConfig", "MobileBertModel", (128,), {}),
    "xlnet": ("XLNetConfig", "XLNetModel", (128,), {"d_model": 768, "n_layer": 12, "n_head": 12, "d_inner": 3072}),
    "funnel": ("FunnelConfig", "FunnelBaseModel", (128,), {}),
    "fnet": ("FNetConfig", "FNetModel", (128,), {}),
    "squeezebert": ("SqueezeBertConfig", "SqueezeBertModel", (128,), {}),
    "mpnet": ("MPNetConfig", "MPNetModel", (128,), {}),
    "convnextv2": ("ConvNextV2Config", "ConvNextV2Model", (3, 224, 224), {}),
    "resnet": ("ResNetConfig", "ResNetModel", (3, 224, 224), {}),
    "regnet": ("RegNetConfig", "RegNetModel", (3, 224, 224), {}),
    "layoutlm": ("LayoutLMConfig", "LayoutLMModel", (128,), {}),
    "gemma": (
        "GemmaConfig",
        "GemmaForCausalLM",
        (256,),
        {
            "hidden_size": 1024,
            "intermediate_size": 4096,
            "num_hidden_layers": 8,
            "num_attention_heads": 8,
            "num_key_value_heads": 1,
            "head_dim": 128,
            "vocab_size": 50000,
            "use_cache": False,
        },
    ),
}
FOREIGN = (
    *(f"timm:{name}" for name in _TIMM),
    *(f"torchvision:{name}" for name in _TORCHVISION),
    *(f"transformers:{name}" for name in _TRANSFORMERS),
)


def key_of(name: str) -> str:
    """Key of `benchmarks.cost.networks` of a network as measured, such as ``timm:dla60`` or ``zoo:resnet18``."""
    library, _, network = name.partition(":")
    if library == "zoo":
        from benchmarks import zoo

        tokens = zoo.kind(network) == "tokens"
        return f"zoo:{network},{'128,0,1000,8000' if tokens else '224,3,1000,0'},1.0,1.0@0"
    sizes = {"timm": "timm-sdpa:{}@0", "torchvision": "torchvision:{}@224", "transformers": "transformers:{}@0"}
    return sizes[library].format(network)


def transformers_model(name: str) -> tuple[Any, tuple[int, ...], Any]:
    """A network of transformers, the shape of a sample, and the type of its input if tokens."""
    import transformers

    configuration, model, shape, options = _TRANSFORMERS[name]
    made = getattr(transformers, configuration)(**options)
    made.attn_implementation = "sdpa"
    return getattr(transformers, model)(made), shape, None if len(shape) != 1 or name == "wav2vec2" else "int64"
