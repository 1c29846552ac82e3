"""Several tensors on one storage: what a tensor is beside its numbers, and when it gets its own."""

import torch


def main() -> None:
    torch.manual_seed(3)
    tall = torch.randint(0, 9, (5, 3))
    print(
        "five rows of three, and the storage below them", tall, tall.storage(), tall.shape, sep="\n"
    )
    raw = tall.untyped_storage()
    print(
        "as bytes:", raw.nbytes(), "at the tensor's own address:", raw.data_ptr() == tall.data_ptr()
    )

    wide = torch.transpose(tall, 0, 1)
    print("the transpose is the same storage, walked with other strides", wide, sep="\n")
    print("strides:", wide.stride(), "and", tall.stride())
    print("one number, four ways:", tall[1, 2], wide[2, 1], tall.storage()[5], wide.storage()[5])

    tall[0, 0] = 10
    print("written to the one, read from the other:", wide[0, 0])

    part = tall[0:2, 0:2]
    print("a part of it is still that storage", part, sep="\n")
    part[0, 0] = 77
    print("so a write to the part is seen in the whole", tall, sep="\n")

    tall.zero_()
    print("zero_ works on the storage, and the transpose is zero too", wide, sep="\n")

    copy = tall.clone()
    copy[0, 0] = 55
    print("a clone has a storage of its own", copy, tall, sep="\n")

    print("contiguous:", tall.is_contiguous(), "and transposed:", wide.is_contiguous())
    packed = wide.contiguous()
    packed[0, 0] = 18
    print("contiguous() of the transpose moved it to new memory:", tall[0, 0], packed[0, 0])
    print("contiguous:", packed.is_contiguous(), tall.is_contiguous())
    print("and of a contiguous tensor it is the tensor itself:", tall.contiguous() is tall)


if __name__ == "__main__":
    main()
