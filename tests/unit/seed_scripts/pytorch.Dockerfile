FROM nvcr.io/nvidia/pytorch:23.10-py3
RUN pip install torch==2.1.0+cu121 -f https://download.pytorch.org/whl/torch_stable.html
