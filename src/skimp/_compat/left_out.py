"""What PyTorch has and skimp leaves out on purpose: each name by its module, under the reason.

`refusals` makes a stand-in of each that can be imported and tested against, and says so when used.
"""

from __future__ import annotations

from typing import Final

_QUANTISED = "skimp has no quantised types; keep tensors in float32, float16 or bfloat16"
_LAYOUTS = "the only sparse layout of skimp is COO; use to_sparse()"
_SCRIPT = "skimp has no TorchScript; torch.jit.script gives the function itself"
_SMALL = "NumPy has no such type, and few programs use it on a CPU; use a wider one"
_OTHER = "skimp computes on the CPU only; there is no such device"
_CUDA = "Torch not compiled with CUDA enabled: skimp has no CUDA backend"
_GROUPS = (
    "skimp joins no processes to groups (torch.distributed.is_available() is False); run one "
    "process, or torch.multiprocessing for workers"
)
_COMPILER = "nothing is compiled; torch.compile gives the function itself"
_NESTED = "skimp has no nested tensors; pad them, or use nn.utils.rnn.PackedSequence"
_QUANTITIES = (
    "q_per_channel_axis q_per_channel_scales q_per_channel_zero_points q_scale q_zero_point"
)
_MEMORY = """
    MemPool caching_allocator_alloc caching_allocator_delete caching_allocator_disabled
    caching_allocator_enable change_current_allocator get_allocator_backend host_memory_stats
    host_memory_stats_as_nested_dict list_gpu_processes memory_snapshot memory_stats_as_nested_dict
    reset_accumulated_host_memory_stats reset_peak_host_memory_stats use_mem_pool
    CUDAPluggableAllocator get_per_process_memory_fraction
"""
_OBSERVERS = """
    AffineQuantizedObserverBase FixedQParamsFakeQuantize FixedQParamsObserver Granularity
    MappingType ObserverOrFakeQuantize PerAxis PerBlock PerGroup PerRow PerTensor PerToken
    QConfigAny ReuseInputObserver TorchAODType UniformQuantizationObserverBase ZeroPointDomain
    convert_dynamic_jit convert_jit default_affine_fixed_qparams_fake_quant
    default_affine_fixed_qparams_observer default_dynamic_fake_quant default_embedding_fake_quant
    default_embedding_fake_quant_4bit default_fixed_qparams_range_0to1_fake_quant
    default_fixed_qparams_range_0to1_observer default_fixed_qparams_range_neg1to1_fake_quant
    default_fixed_qparams_range_neg1to1_observer default_float_qparams_observer_4bit
    default_fused_act_fake_quant default_fused_per_channel_wt_fake_quant
    default_fused_wt_fake_quant default_histogram_fake_quant default_reuse_input_observer
    default_symmetric_fixed_qparams_fake_quant default_symmetric_fixed_qparams_observer
    fuse_conv_bn fuse_conv_bn_jit fuse_conv_bn_relu fuse_convtranspose_bn fuse_linear_bn
    fused_per_channel_wt_fake_quant_range_neg_127_to_127
    fused_wt_fake_quant_range_neg_127_to_127 get_block_size get_default_compare_output_module_list
    get_default_custom_config_dict get_default_dynamic_quant_module_mappings
    get_default_dynamic_sparse_quant_module_mappings
    get_default_float_to_quantized_operator_mappings get_default_qat_module_mappings
    get_default_qat_qconfig_dict get_default_qconfig_dict get_default_qconfig_propagation_list
    get_default_static_quant_module_mappings get_default_static_quant_reference_module_mappings
    get_default_static_sparse_quant_module_mappings get_dynamic_quant_module_class
    get_embedding_qat_module_mappings get_embedding_static_quant_module_mappings get_fuser_method
    get_fuser_method_new get_observer_state_dict get_quantized_operator
    get_static_quant_module_class load_observer_state_dict no_observer_set observer
    per_channel_weight_observer_range_neg_127_to_127 prepare_dynamic_jit prepare_jit qconfig_equals
    quantize_dynamic_jit quantize_jit script_qconfig script_qconfig_dict
    weight_observer_range_neg_127_to_127
"""

_NAMES: Final[dict[str, tuple[tuple[str, str], ...]]] = {
    "skimp": (
        (_QUANTISED, f"""
            QInt32Storage QInt8Storage QUInt2x4Storage QUInt4x2Storage QUInt8Storage
            choose_qparams_optimized empty_quantized fake_quantize_per_channel_affine
            fake_quantize_per_tensor_affine int_repr qint32 qint8 qscheme quantize_per_channel
            quantize_per_tensor quantize_per_tensor_dynamic quint2x4 quint4x2 quint8
            {_QUANTITIES}
            per_tensor_affine per_channel_affine per_tensor_symmetric per_channel_symmetric
        """),
        (_SMALL, """
            bit bits16 bits1x8 bits2x4 bits4x2 bits8 chalf complex32 float4_e2m1fn_x2 int1 int2
            int3 int4 int5 int6 int7 uint1 uint2 uint3 uint4 uint5 uint6 uint7
        """),
        (_LAYOUTS, """
            ccol_indices_copy col_indices_copy crow_indices_copy row_indices_copy sparse_csr
            sparse_csc sparse_bsr sparse_bsc
        """),
        (
            "an older form that only sparse tensors have; use torch.sparse.mm and addition",
            "hsmm hspmm saddmm sspaddmm resize_as_sparse_",
        ),
        (_SCRIPT, """
            AVG SUM import_ir_module import_ir_module_from_buffer merge_type_from_type_comment
            parse_ir parse_schema parse_type_comment unify_type_list cpp
        """),
        (_OTHER, """
            Event Stream get_autocast_ipu_dtype get_autocast_xla_dtype is_autocast_ipu_enabled
            is_autocast_xla_enabled set_autocast_ipu_dtype set_autocast_ipu_enabled
            set_autocast_xla_dtype set_autocast_xla_enabled
        """),
        ("PyTorch has no kernel for it on a CPU either", "native_norm indices_copy values_copy"),
    ),
    "skimp.Tensor": (
        (_QUANTISED, f"int_repr qscheme {_QUANTITIES}"),
        (_SMALL, "chalf"),
        (_LAYOUTS, "ccol_indices col_indices crow_indices row_indices"),
        (
            "an older form that only sparse tensors have; use torch.sparse.mm and addition",
            "resize_as_sparse_ sparse_resize_ sparse_resize_and_clear_ sspaddmm",
        ),
        (_OTHER, "ipu mtia record_stream to_mkldnn xpu"),
        (_NESTED, "to_padded_tensor"),
        ("skimp has no first-class dimensions; index by brackets", "index"),
    ),
    "skimp.accelerator": ((_OTHER, "Graph empty_host_cache"),),
    "skimp.ao.quantization": ((_QUANTISED, _OBSERVERS),),
    "skimp.quantization": (
        (_QUANTISED, """
            default_fixed_qparams_range_0to1_fake_quant
            default_fixed_qparams_range_neg1to1_fake_quant default_histogram_fake_quant
            get_default_compare_output_module_list get_default_dynamic_quant_module_mappings
            get_default_qat_module_mappings get_default_qconfig_propagation_list
            get_default_static_quant_module_mappings get_fuser_method get_quantized_operator
            get_static_quant_module_class observer quantize_dynamic_jit quantize_jit
        """),
    ),
    "skimp.autograd": (
        ("an older form of torch.autograd.Function; derive that", "NestedIOFunction"),
        (
            "gradients are laid out as the engine makes them; call contiguous() on them",
            "enforce_grad_layout_policy",
        ),
    ),
    "skimp.autograd.graph": (
        (
            "memory is bounded by skimp.memory and activations by torch.utils.checkpoint",
            "region_activation_memory_budget",
        ),
        (_OTHER, "set_override_stale_capture_stream set_warn_on_accumulate_grad_stream_mismatch"),
    ),
    "skimp.autograd.profiler": (
        (
            "the tables of torch.profiler.profile are skimp's own; use key_averages()",
            "EnforceUnique EventList FunctionEvent KinetoStepTracker MemRecordsAcc",
        ),
    ),
    "skimp.backends.cuda": (
        (_CUDA, """
            SDPAParams blas_workspace_size can_use_cudnn_attention can_use_efficient_attention
            can_use_flash_attention cuBLASModule cuFFTPlanCache cuFFTPlanCacheAttrContextProp
            cuFFTPlanCacheManager cublas_workspace_size cublaslt_workspace_size
            is_ck_sdpa_available preferred_rocm_fa_library
        """),
    ),
    "skimp.backends.mps": ((_OTHER, "get_core_count get_name is_macos13_or_newer"),),
    "skimp.compiler": (
        (_COMPILER, """
            keep_portable_guards_unsafe keep_tensor_guards_unsafe load_cache_artifacts
            load_compiled_function save_cache_artifacts set_enable_guard_collectives
            skip_all_guards_unsafe skip_guard_on_all_nn_modules_unsafe
            skip_guard_on_globals_unsafe skip_guard_on_inbuilt_nn_modules_unsafe wrap_numpy config
        """),
    ),
    "skimp.cpu": (
        ("work on the CPU has one queue; use synchronize()", "Event StreamContext"),
        ("NumPy knows the processor; see numpy.show_runtime()", "get_capabilities"),
    ),
    "skimp.cuda": (
        (_CUDA, f"""
            BFloat16Storage BoolStorage ByteStorage CharStorage ComplexDoubleStorage
            ComplexFloatStorage DoubleStorage FloatStorage GreenContext HalfStorage IntStorage
            LongStorage ShortStorage check_error cudaStatus current_solver_handle
            get_stream_from_external graphs jiterator nccl profiler sparse tunable {_MEMORY}
        """),
    ),
    "skimp.cuda.amp": ((_CUDA, "amp_definitely_not_available"),),
    "skimp.cuda.memory": ((_CUDA, _MEMORY),),
    "skimp.distributed": (
        (_GROUPS, """
            AllToAllOptions AllreduceCoalescedOptions AllreduceOptions BackendConfig BarrierOptions
            BroadcastOptions GatherOptions GroupMember ProcessGroupGloo ReduceOptions
            ReduceScatterOptions ScatterOptions all_gather_coalesced all_gather_single
            all_reduce_coalesced breakpoint get_backend_config get_default_backend_for_device
            get_group_rank get_pg_count new_subgroups_by_enumeration record_comm recv_object_list
            reduce_scatter_single register_rendezvous_handler rendezvous send_object_list
            set_debug_level set_debug_level_from_env shrink_group split_group supports_complex
        """),
    ),
    "skimp.func": (
        ("functions are not wrapped level by level here", "debug_unwrap"),
        ("it is einops' function; use the package einops, which takes these tensors", "rearrange"),
    ),
    "skimp.jit": ((_SCRIPT, "export_opnames"),),
    "skimp.masked": (("use the functions of torch.masked with a mask", "MaskedTensor"),),
    "skimp.mps": ((_OTHER, "load_metallib profiler"),),
    "skimp.mtia": (
        (_OTHER, """
            MTIAGraph attach_out_of_memory_observer current_device current_stream default_stream
            device get_device_capability get_device_properties get_rng_state get_rng_state_all
            graph graph_pool_handle init initial_seed is_bf16_supported manual_seed
            manual_seed_all max_memory_allocated memory_allocated memory_stats
            record_memory_history reset_peak_memory_stats seed seed_all set_device set_rng_state
            set_rng_state_all set_stream snapshot stream
        """),
    ),
    "skimp.nested": (
        (_NESTED, """
            as_nested_tensor masked_select narrow nested_tensor nested_tensor_from_jagged
            to_padded_tensor
        """),
    ),
    "skimp.nn": (
        (
            "use nn.functional.linear_cross_entropy",
            "LinearCrossEntropyLoss LinearCrossEntropyOptions",
        ),
    ),
    "skimp.nn.attention": (
        (
            "attention has one implementation",
            "activate_flash_attention_impl register_flash_attention_impl "
            "restore_flash_attention_impl",
        ),
    ),
    "skimp.nn.functional": (
        (
            "products of scaled 8-bit matrices are for GPUs; convert with to(torch.float32)",
            "ScalingType SwizzleType scaled_grouped_mm scaled_mm",
        ),
        ("use torch.bmm, or torch.mm for each group", "grouped_mm"),
    ),
    "skimp.onnx": (("skimp traces no graphs; export with PyTorch", "errors ops"),),
    "skimp.optim": (
        ("set the parameters and load_state_dict()", "swap_in_optimizer_params_and_state"),
    ),
    "skimp.package": (("skimp makes no packages", "is_from_package"),),
    "skimp.serialization": (
        ("files hold no other layouts than the CPU's", "validate_cuda_device validate_hpu_device"),
        ("storages are restored to the CPU", "register_package location_tag"),
        ("name a dtype in place of a type of storage",
         "StorageType normalize_storage_type storage_to_tensor_type"),
        (
            "files are written with their values; write zeros",
            "skip_data check_module_version_greater_or_equal mkdtemp",
        ),
    ),
    "skimp.sparse": (
        (_LAYOUTS, """
            SparseSemiStructuredTensor SparseSemiStructuredTensorCUSPARSELT
            SparseSemiStructuredTensorCUTLASS to_sparse_semi_structured as_sparse_gradcheck
        """),
        (
            "give check_invariants=True to sparse_coo_tensor",
            "check_sparse_tensor_invariants",
        ),
    ),
    "skimp.testing": ((_SCRIPT, "FileCheck"),),
    "skimp.utils": (
        (_OTHER, "generate_methods_for_privateuse1_backend rename_privateuse1_backend"),
        (_SCRIPT, "ThroughputBenchmark"),
        ("there is no C++ below; Python's traceback says it all", "get_cpp_backtrace"),
    ),
    "skimp.utils.benchmark": (
        ("instructions are not counted; use Timer.blocked_autorange()",
         "CallgrindStats CopyIfCallgrind FunctionCount FunctionCounts"),
        (
            "use hypothesis, or torch.testing.make_tensor",
            "FuzzedParameter FuzzedSparseTensor FuzzedTensor Fuzzer ParameterAlias",
        ),
        ("tables have no colours", "Colorize"),
    ),
    "skimp.utils.checkpoint": (
        (
            "there is no dispatcher that would see each op; checkpoint smaller functions",
            "GraphExecGroup SAC_IGNORED_OPS SelectiveCheckpointContext "
            "create_selective_checkpoint_contexts",
        ),
    ),
    "skimp.utils.cpp_extension": (
        (
            "skimp is Python on NumPy and loads no C++ extensions",
            "check_compiler_is_gcc get_default_build_root remove_extension_h_precompiler_headers",
        ),
    ),
    "skimp.utils.data": (
        ("PyTorch is removing data pipes; use a Dataset or an IterableDataset", """
            DFIterDataPipe DataChunk IterDataPipe MapDataPipe argument_validation
            functional_datapipe guaranteed_datapipes_determinism non_deterministic
            runtime_validation runtime_validation_disabled
        """),
    ),
    "skimp.utils.hooks": (("use Module.register_full_backward_hook", "BackwardHook"),),
    "skimp.xpu": (
        (_OTHER, """
            MemPool StreamContext XPUGraph XPUPluggableAllocator can_device_access_peer
            change_current_allocator clock_rate default_generators device_memory_used device_of
            get_arch_list get_gencode_flags get_per_process_memory_fraction get_rng_state_all
            get_stream_from_external graph graph_pool_handle is_current_stream_capturing
            is_tf32_supported make_graphed_callables memory_snapshot memory_stats
            memory_stats_as_nested_dict memory_usage power_draw reset_accumulated_memory_stats
            set_per_process_memory_fraction set_rng_state set_rng_state_all set_stream streams
            temperature use_mem_pool utilization
        """),
    ),
}  # fmt: skip
REASONS: Final[dict[str, dict[str, str]]] = {
    module: {name: reason for reason, names in rows for name in names.split()}
    for module, rows in _NAMES.items()
}
