"""torch.distributed on two ranks answers what PyTorch's answers on gloo: under mpiexec and between
processes that have started themselves.
"""

from __future__ import annotations

import json
from functools import cache
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.support import ranks
from tests.support.shared import made_once

PROGRAM = Path(__file__).with_name("steps.py")
DTYPES = "float64 float32 float16 bfloat16 int8 uint8 int32 int64 bool complex64 complex128"
OPS = "SUM AVG PRODUCT MIN MAX BAND BOR BXOR"
# gloo has no such sum, average or product, or gives what its bytes happen to mean
UNLIKE = {
    *[("bool", op) for op in ("AVG", "BAND", "BOR", "BXOR")],
    *[(kind, "AVG") for kind in ("int8", "uint8", "int32", "int64", "complex64", "complex128")],
    *[("float16", op) for op in ("AVG",)],
    *[("bfloat16", op) for op in ("AVG",)],
    # refused, but by a barrier after it, now and then
    *[
        (kind, op)
        for kind in ("float64", "float32", "float16", "bfloat16", "complex64", "complex128")
        for op in ("BAND", "BOR", "BXOR")
    ],
}
STEPS = """
x=torch.ones(3); v=x._version; dist.all_reduce(x); out=(v,x._version)
x=torch.ones(3,requires_grad=True); dist.all_reduce(x); out=x
x=torch.ones(3,requires_grad=True)*2; dist.all_reduce(x); out=x
x=torch.arange(6.).view(2,3).t(); dist.all_reduce(x); out=x
x=torch.ones(3); y=x*2; dist.all_reduce(x); out=[x,y]
x=torch.arange(40000.)*(r+1); y=x*2; dist.all_reduce(x); out=[x[-3:],y[-3:],(x+y)[-3:]]
x=(torch.arange(40000.)*(r+1)).view(200,200)[3]; dist.all_reduce(x); out=x
x=torch.ones(3,dtype=torch.complex64); dist.all_reduce(x,dist.ReduceOp.MAX); out=x
x=torch.tensor(2.); dist.all_reduce(x); out=x
x=torch.tensor([]); dist.all_reduce(x); out=x
dist.all_reduce(3)
x=torch.ones(3)*r; dist.broadcast(x,1); out=x
x=torch.ones(3)*r; dist.broadcast(x,src=1); out=x
x=torch.ones(3)*r; dist.broadcast(x,group_src=1); out=x
dist.broadcast(torch.ones(3),7)
dist.broadcast(torch.ones(3))
dist.broadcast(torch.ones(3),1,group_src=1)
x=torch.ones(3)*(r+1); dist.reduce(x,0); out=x if r==0 else None
x=torch.ones(3)*(r+1); dist.reduce(x,1,op=dist.ReduceOp.MAX); out=x if r==1 else None
x=torch.ones(3)*r; l=[torch.empty(3),torch.empty(3)]; dist.all_gather(l,x); out=l
x=torch.ones(3)*r; l=list(torch.empty(2,3)); dist.all_gather(l,x); out=l
x=torch.ones(3); l=[torch.empty(3)]; dist.all_gather(l,x); out=l
x=torch.ones(3); l=[torch.empty(3,dtype=torch.float64)]*2; dist.all_gather(l,x); out=l
x=torch.ones(3); l=[torch.empty(2),torch.empty(3)]; dist.all_gather(l,x); out=l
dist.all_gather(torch.ones(3),torch.ones(3))
x=torch.ones(3)*r; o=torch.empty(6); dist.all_gather_single(o,x); out=o
x=torch.ones(3)*r; o=torch.empty(6); dist.all_gather_into_tensor(o,x); out=o
x=torch.ones(2,3)*r; o=torch.empty(4,3); dist.all_gather_single(o,x); out=o
x=torch.ones(3); o=torch.empty(5); dist.all_gather_single(o,x); out=o
x=torch.arange(4.)*(r+1); o=torch.empty(2); dist.reduce_scatter_single(o,x); out=o
x=torch.arange(4.)*(r+1); o=torch.empty(2); dist.reduce_scatter_tensor(o,x); out=o
x=torch.arange(4.)*(r+1); o=torch.empty(2); dist.reduce_scatter_single(o,x,op=dist.ReduceOp.MAX); out=o
x=[torch.ones(2)*r,torch.ones(2)+r]; o=torch.empty(2); dist.reduce_scatter(o,x); out=o
x=torch.arange(4.)+10*r; o=torch.empty(4); dist.all_to_all_single(o,x); out=o
x=torch.arange(4.)+10*r; o=torch.empty(4); dist.all_to_all_single(o,x,[2,2],[2,2]); out=o
x=torch.arange(6.).view(3,2)+10*r; o=torch.empty(2+2*r,2); dist.all_to_all_single(o,x,[1+r]*2,[1,2]); out=o
x=list((torch.arange(4.)+10*r).chunk(2)); o=[torch.empty(2),torch.empty(2)]; dist.all_to_all(o,x); out=o
x=torch.ones(3)*r; l=[torch.empty(3) for _ in range(2)] if r==0 else None; dist.gather(x,l,0); out=l
x=torch.ones(3)*r; l=[torch.empty(3) for _ in range(2)] if r==1 else None; dist.gather(x,l,group_dst=1); out=l
x=torch.ones(3); dist.scatter(x,[torch.zeros(3),torch.zeros(3)+5] if r==0 else None,0); out=x
out=dist.get_rank(), dist.get_world_size(), dist.get_backend(), dist.ReduceOp.SUM, str(dist.ReduceOp.SUM)
w=dist.all_reduce(torch.ones(3),async_op=True); out=(w.wait(), w.is_completed(), w.is_success(), w.get_future().wait(), w.result())
w=dist.broadcast(torch.ones(3),0,async_op=True); out=(w.wait(), w.is_completed(), w.get_future().wait(), w.result())
w=dist.barrier(async_op=True); out=w.wait()
l=[torch.empty(3),torch.empty(3)]; w=dist.all_gather(l,torch.ones(3),async_op=True); out=(w.wait(),w.get_future().wait(), w.result())
x=torch.ones(3); w=dist.all_reduce(x,async_op=True); f=w.get_future().then(lambda f: f.value()[0]*2); w.wait(); out=f.wait()
ws=[dist.all_reduce(torch.ones(50000)*i,async_op=True) for i in range(9)]; out=[w.wait() and w.result()[0][:2] for w in ws]
g=dist.new_group([0]); out=(dist.get_rank(g), dist.get_world_size(g))
x=torch.ones(3); dist.all_reduce(x,group=g); out=x
dist.broadcast(torch.ones(3),0,group=g); dist.barrier(g)
h=dist.new_group([1,0]); out=(dist.get_rank(h), dist.get_process_group_ranks(h), dist.get_global_rank(h,1), dist.get_group_rank(h,1))
x=torch.ones(3)*r; dist.broadcast(x,1,group=h); out=x
dist.new_group([0,0])
dist.new_group([0,5])
out=dist.get_global_rank(dist.group.WORLD,1), dist.get_group_rank(dist.group.WORLD,1)
dist.init_process_group("gloo")
out=dist.group.WORLD.name(), dist.group.WORLD.group_name, dist.group.WORLD.rank(), dist.group.WORLD.size()
out=dist.is_initialized(), dist.is_available(), dist.is_gloo_available(), dist.is_torchelastic_launched()
l=[None]*2; dist.all_gather_object(l,{"a":"x"*r}); out=l
l=[{"a":r},r,"x"*r]; dist.broadcast_object_list(l,1); out=l
l=[None]; dist.scatter_object_list(l,["a","bcd"] if r==0 else [None,None],0); out=l
dist.scatter_object_list([],["a","b"],0)
l=[None]*2 if r==0 else None; dist.gather_object(r,l,0); out=l
l=[None,None]; (dist.send_object_list(["a",torch.ones(2)],1) if r==0 else dist.recv_object_list(l,0)); out=l
t=torch.zeros(3); out=(dist.send(torch.ones(3),1) if r==0 else dist.recv(t),t)
t=torch.zeros(3); out=(dist.send(torch.ones(3),1,tag=5) if r==0 else dist.recv(t,0,tag=5),t)
t=torch.zeros(3); w=(dist.isend(torch.ones(3),1) if r==0 else dist.irecv(t,0)); out=(w.wait(),t)
dist.send(torch.ones(3),r)
t=torch.zeros(3); ws=dist.batch_isend_irecv([dist.P2POp(dist.isend,torch.ones(3)*r,1-r),dist.P2POp(dist.irecv,t,1-r)]); [w.wait() for w in ws]; out=t
dist.P2POp(dist.send,torch.ones(3),1-r)
dist.batch_isend_irecv([3])
out=dist.P2POp(dist.isend,torch.ones(3),1-r)
dist.all_reduce_coalesced([torch.ones(3),3])
x=[torch.ones(3),torch.ones(2)]; w=dist.all_reduce_coalesced(x,async_op=True); w.wait(); out=x
x=[torch.arange(n+0.)*(r+1) for n in (40001,7,1,90000)]; dist.all_reduce_coalesced(x); out=[t[::997] for t in x]
x=[torch.arange(n).sub(n//2).mul(1-2*r) for n in (7,0,40001,3)]; dist.all_reduce_coalesced(x,dist.ReduceOp.MAX); out=[t[::997] for t in x]
dist.monitored_barrier(); out=1
T=dist.ReduceOp.RedOpType; x=torch.ones(2)*(r+1); dist.all_reduce(x,op=T.MAX); out=[x,T.MAX==dist.ReduceOp.MAX,list(T.__members__)]
dist.monitored_barrier(wait_all_ranks=True); out=1
g,gs=dist.new_subgroups(1); out=dist.get_rank(g),len(gs)
dist.new_subgroups(3)
dist.new_subgroups_by_enumeration([[0],[0,1]])
g,gs=dist.new_subgroups_by_enumeration([[0],[1]]); out=dist.get_process_group_ranks(g)
dist.all_reduce(torch.ones(2),group=g); dist.destroy_process_group(g)
m=dist.init_device_mesh("cpu",(2,1),mesh_dim_names=("a","b")); g=m; out=repr((m,m["a"],m["b"],m["a","b"],m[("b",)]))
out=g.get_coordinate(),g.mesh.tolist(),g.mesh.dtype is torch.int32,tuple(g.shape),g.ndim,g.size(),g.size(1),g.get_local_rank("a"),g["a"].get_coordinate()
f=g._flatten(); out=repr((f,f["a_b"],g["a_b"],g._flatten("z"),g["z"])),f.size(),f.get_local_rank()
g["c"]
x=torch.ones(2)*(r+1); y=torch.ones(3); c=dist._coalescing_manager(async_ops=True); w=c.__enter__(); dist.all_reduce(x); dist.all_reduce(y); c.__exit__(None,None,None); w.wait(); out=[x,y]
g["a","c"]
m=dist.init_device_mesh("cpu",(2,)); m["a"]
m=dist.init_device_mesh("cpu",(2,)); out=repr(m),m==dist.DeviceMesh("cpu",[0,1]),m==g,g==g,len({m,g})
out=repr(dist.DeviceMesh.from_group(dist.group.WORLD,"cpu",mesh_dim_names=("x",))),repr(dist.DeviceMesh("cpu",[[0,1]]))
g.get_group()
x=torch.ones(3)*(r+1); dist.all_reduce(x,group=g.get_group("a")); y=x.clone(); dist.all_reduce(y,group=g.get_group(1)); out=[x,y]
out=dist.distributed_c10d._get_default_group() is dist.group.WORLD, dist.supports_complex(dist.ReduceOp.MAX)
"""  # noqa: E501


def _products() -> list[str]:
    """Every dtype with every operation, in place and to one rank."""
    made = []
    for kind in DTYPES.split():
        values = f"(torch.arange(1,9)%5*(r+1)).to(torch.{kind})"
        likes = [op for op in OPS.split() if (kind, op) not in UNLIKE]
        made += [f"x={values}; dist.all_reduce(x,dist.ReduceOp.{op}); out=x" for op in likes]
        made.append(f"x={values}; dist.broadcast(x,1); out=x")
        made.append(f"x={values}; l=[x*0,x*0]; dist.all_gather(l,x); out=l")
    return made


def _large() -> list[str]:
    """As much as is read where it lies, in parts of other sizes: the ends and where parts meet."""
    made = []
    seen = "out=[x[:2],x[69990:70010],x[-2:]]"
    for kind in DTYPES.split():
        values = f"(torch.arange(140001)%5*(r+1)).to(torch.{kind})"
        likes = [op for op in OPS.split() if (kind, op) not in UNLIKE]
        made += [f"x={values}; dist.all_reduce(x,dist.ReduceOp.{op}); {seen}" for op in likes]
        made.append(f"x={values}; dist.broadcast(x,1); {seen}")
        made.append(f"y={values}; x=y.repeat(2); dist.all_gather_single(x,y); {seen}")
        if kind != "bool":  # gloo sums none
            zeros = "x=torch.zeros_like(y[:70000])"
            made.append(f"y={values}[1:]; {zeros}; dist.reduce_scatter_single(x,y); {seen}")
    return made + [AVERAGED.format(kind) for kind in ("float32", "float64", "bfloat16", "float16")]


def _fractions() -> list[str]:
    """Sums and averages of two terms that are rounded, through MPI and from where they lie."""
    made = []
    for kind, n in product(("float32", "float64", "float16", "bfloat16"), (4001, 140001)):
        values = f"(torch.arange({n})*7919%65537*(0.0173*(r+1.7))).to(torch.{kind})"
        made += [
            f"x={values}; dist.all_reduce(x,dist.ReduceOp.{op}); x/=n; out=x[::7]"
            for op in ("SUM", "PRODUCT")
        ]
        made.append(f"x={values}; dist.reduce(x,1); out=x[::7] if r else None")
        halves = f"y={values}[1:]; x=y[{n // 2}:]*0"
        made.append(f"{halves}; dist.reduce_scatter_single(x,y); out=x[::7]")
    return made


# gradients that DDP averages from where they lie
AVERAGED = (
    "m=torch.nn.PReLU(140001).to(torch.{0}); x=(torch.arange(140001)%501*-1.3*(r+1.7))"
    ".to(torch.{0}); torch.nn.parallel.DistributedDataParallel(m)(x.view(1,-1)).sum().backward(); "
    "out=m.weight.grad[::997]"
)
LARGE = """
x=torch.arange(20001.)*(r+1); dist.broadcast(x,1); y=x.to(torch.float16)*(r+1); w=dist.broadcast(y[:9999],0,async_op=True); w.wait(); out=[x[::97],y[::97]]
xs=[torch.ones(50000+i)*r for i in range(5)]; ws=[dist.all_reduce(x,async_op=True) for x in xs]; [w.wait() for w in ws[::-1]]; out=[x[-2:] for x in xs]
x=torch.ones(300,300)*r; dist.all_reduce(x.t()); out=x[:3,8:12]
x=torch.ones(80000)*r; l=[torch.empty(80000) for _ in range(2)]; dist.all_gather(l,x); out=[t[-2:] for t in l]
x=torch.arange(80000.)+r; y=torch.ones(80000)*r; w=dist.broadcast(y,0,async_op=True); v=dist.all_reduce(x,async_op=True); v.wait(); w.wait(); out=[x[-2:],y[:2]]
x=torch.tensor([float("nan"),1.]*40000)*(1+r); dist.all_reduce(x); out=str(x[-3:])
g=dist.new_group([1,0]); x=torch.ones(90000)*(r+1); dist.all_reduce(x,group=g); out=x[-3:]
g=dist.new_group([1]); x=torch.ones(90000)*(r+1); dist.all_reduce(x,group=g) if r else None; out=x[-3:]
"""  # noqa: E501


@cache
def steps() -> list[str]:
    """All of them."""
    plain = [*STEPS.strip().splitlines(), *_products(), *LARGE.strip().splitlines()]
    return [*plain, *_large(), *_fractions()]


@made_once
def answers(kind: str) -> list[list[str]]:
    """What each rank answered, by step."""
    with TemporaryDirectory() as folder:
        source, target = Path(folder) / "steps", Path(folder) / "answers"
        source.write_text("\n".join(steps()))
        words = str(source), str(target)
        if kind == "gloo":
            ranks.run_theirs(PROGRAM, *words, n=2)
        elif kind == "self-started":
            ranks.run_each(ranks.ours(PROGRAM, *words), 2)
        else:
            done = ranks.run_mpiexec(ranks.ours(PROGRAM, *words), 2)
            assert done.returncode == 0, done.stderr
        return [json.loads(Path(f"{target}.{r}").read_text()) for r in range(2)]


@pytest.mark.parametrize("kind", ["mpiexec", "self-started"])
def test_two_ranks_answer_as_gloos(kind: str) -> None:
    expected, found = answers("gloo"), answers(kind)
    for rank in range(2):
        pairs = zip(steps(), expected[rank], found[rank], strict=True)
        wrong = [f"{s}\n  gloo {e}\n  ours {f}" for s, e, f in pairs if not _same(e, f)]
        assert not wrong, f"rank {rank}:\n" + "\n".join(wrong)


def _same(expected: str, found: str) -> bool:
    if "all_reduce_coalesced` will be deprecated" in expected:
        expected = expected.partition(" FutureWarning")[0]
    return expected == found
